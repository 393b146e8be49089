/* SPDX-License-Identifier: MIT */
/* etcd_step_test.c - steps of a lane go one behind another; others do not wait.
 */
#include "etcd_fake.h"

enum { STEPS = 16, MANY = 5000 };

struct steps;
struct step {
    struct vow__step_lane lane;
    struct steps *all;
    unsigned number;
    bool begun, ended;
    int refused;
};

struct steps {
    struct fake_etcd fake;
    struct step at[MANY];
    char log[256];  /* "+1-1+2": begun, ended */
    bool at_once;   /* they end when they begin */
    bool again;     /* who is refused asks once more */
    unsigned depth; /* of begin within begin */
    unsigned begun;
};

static const char *no_answer(struct fake_etcd *f, const char *path,
                             const char *body)
{
    (void)f;
    (void)path;
    (void)body;
    return FAKE_HANG_UP;
}

static void note(struct steps *s, char sign, unsigned number)
{
    size_t n = strlen(s->log);
    snprintf(s->log + n, sizeof(s->log) - n, "%c%u", sign, number);
}

static void step_end(struct step *p)
{
    CHECK(p->begun && !p->ended);
    p->ended = true;
    if (!p->all->at_once)
        note(p->all, '-', p->number);
    vow__step_end(&p->lane);
}

static void on_begin(struct vow__step_lane *lane)
{
    struct step *p = VOW__OUTER(lane, struct step, lane);
    CHECK(!p->begun && p->refused == 0);
    CHECK_UINT_EQ(p->all->depth++, 0);
    p->begun = true;
    p->all->begun++;
    if (!p->all->at_once)
        note(p->all, '+', p->number);
    else
        step_end(p);
    p->all->depth--;
}

static void on_refuse(struct vow__step_lane *lane, int code)
{
    struct step *p = VOW__OUTER(lane, struct step, lane);
    CHECK(!p->begun);
    p->refused = code;
    if (p->all->again) {
        p->all->again = false;
        vow__step_begin(p->all->fake.etcd, lane);
    }
}

static void step_begin(struct steps *s, unsigned number, const char *lane)
{
    struct step *p = &s->at[number];
    *p = (struct step){.all = s,
                       .number = number,
                       .lane = {.lane = vow_name_of(lane),
                                .begin = on_begin,
                                .refuse = on_refuse}};
    vow__step_begin(s->fake.etcd, &p->lane);
}

static struct steps *steps_new(void)
{
    struct steps *s = calloc(1, sizeof(*s));
    CHECK(s != NULL);
    return s;
}

TEST(etcd_step, the_next_of_a_lane_begins_when_the_one_before_has_ended)
{
    struct steps *s = steps_new();
    fake_etcd_open(&s->fake, no_answer);
    step_begin(s, 1, "a");
    step_begin(s, 2, "a");
    step_begin(s, 3, "a");
    world_turn(s->fake.w);
    CHECK_STR_EQ(s->log, "+1");
    step_end(&s->at[1]);
    step_begin(s, 4, "a");
    CHECK_STR_EQ(s->log, "+1-1");
    world_turn(s->fake.w);
    CHECK_STR_EQ(s->log, "+1-1+2");
    step_end(&s->at[2]);
    world_turn(s->fake.w);
    step_end(&s->at[3]);
    world_turn(s->fake.w);
    step_end(&s->at[4]);
    CHECK_STR_EQ(s->log, "+1-1+2-2+3-3+4-4");
    step_begin(s, 5, "a");
    step_end(&s->at[5]);
    CHECK_STR_EQ(s->log, "+1-1+2-2+3-3+4-4+5-5");
    fake_etcd_close(&s->fake);
    free(s);
}

TEST(etcd_step, lanes_do_not_wait_for_each_other)
{
    struct steps *s = steps_new();
    fake_etcd_open(&s->fake, no_answer);
    step_begin(s, 1, "a");
    step_begin(s, 2, "b");
    step_begin(s, 3, "a");
    step_begin(s, 4, "c");
    CHECK_STR_EQ(s->log, "+1+2+4");
    step_end(&s->at[2]);
    step_end(&s->at[4]);
    step_end(&s->at[1]);
    world_turn(s->fake.w);
    step_end(&s->at[3]);
    CHECK_STR_EQ(s->log, "+1+2+4-2-4-1+3-3");
    fake_etcd_close(&s->fake);
    free(s);
}

/* The timeout is that of etcd_fake.h, from when each was asked for. */
TEST(etcd_step, who_gets_no_turn_in_time_is_refused)
{
    struct steps *s = steps_new();
    fake_etcd_open(&s->fake, no_answer);
    uint64_t timeout = vow__etcd_where_of(s->fake.etcd)->timeout_ms;
    step_begin(s, 1, "a");
    step_begin(s, 2, "a");
    world_advance_ms(s->fake.w, timeout / 2);
    step_begin(s, 3, "a");
    CHECK(!vow__step_late(&s->at[1].lane));
    world_advance_ms(s->fake.w, timeout / 2);
    CHECK(vow__step_late(&s->at[1].lane));
    CHECK_INT_EQ(s->at[2].refused, 0); /* when its turn comes */
    step_end(&s->at[1]);
    world_turn(s->fake.w);
    CHECK_INT_EQ(s->at[2].refused, VOW_ESTORE);
    world_turn(s->fake.w);
    CHECK_STR_EQ(s->log, "+1-1+3");
    CHECK_INT_EQ(s->at[3].refused, 0);
    step_end(&s->at[3]);
    fake_etcd_close(&s->fake);
    free(s);
}

TEST(etcd_step, thousands_that_end_at_once_need_one_frame)
{
    struct steps *s = steps_new();
    fake_etcd_open(&s->fake, no_answer);
    step_begin(s, 0, "a");
    for (unsigned i = 1; i < MANY; i++)
        step_begin(s, i, "a");
    s->at_once = true;
    CHECK_UINT_EQ(s->begun, 1);
    step_end(&s->at[0]);
    world_turn(s->fake.w);
    CHECK_UINT_EQ(s->begun, MANY); /* on_begin checks the depth */
    fake_etcd_close(&s->fake);
    free(s);
}

TEST(etcd_step, closing_refuses_those_that_wait_and_lets_the_others_end)
{
    struct steps *s = steps_new();
    fake_etcd_open(&s->fake, no_answer);
    struct vow__etcd_steps *steps = vow__etcd_steps(s->fake.etcd);
    step_begin(s, 1, "a");
    step_begin(s, 2, "a");
    step_begin(s, 3, "b");
    step_begin(s, 4, "b");
    step_begin(s, 5, "b");
    step_end(&s->at[3]); /* and the next has not begun yet */
    s->again = true;
    vow__steps_close(steps);
    CHECK_INT_EQ(s->at[2].refused, VOW_ECLOSED);
    CHECK_INT_EQ(s->at[4].refused, VOW_ECLOSED);
    CHECK_INT_EQ(s->at[5].refused, VOW_ECLOSED);
    CHECK(!s->again);
    world_turn(s->fake.w);
    CHECK_STR_EQ(s->log, "+1+3-3");
    step_end(&s->at[1]);
    step_begin(s, 6, "a");
    CHECK_INT_EQ(s->at[6].refused, VOW_ECLOSED);
    fake_etcd_close(&s->fake);
    free(s);
}

FAULT_SWEEP(etcd_step, without_memory_a_step_is_refused, FAULT_ALLOC)
{
    struct steps *s = steps_new();
    fake_etcd_begin(&s->fake, w, no_answer);
    if (s->fake.store != NULL) {
        step_begin(s, 1, "a");
        step_begin(s, 2, "b");
        for (unsigned i = 1; i <= 2; i++) {
            CHECK(s->at[i].begun != (s->at[i].refused != 0));
            CHECK(s->at[i].begun || fault_explains(w, s->at[i].refused));
            if (s->at[i].begun)
                step_end(&s->at[i]);
        }
    }
    fake_etcd_end(&s->fake);
    free(s);
}
