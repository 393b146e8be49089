/* SPDX-License-Identifier: MIT */
/* query_cache.c - many clients, few queries: what they have in common is done
 * once.
 *
 * A query is a pipeline: match rows of a table, sort them, group them. Every
 * step is SQL over what the step before it gave, and has a name made of itself
 * and of all steps before it. So a query that was asked before is not asked
 * again; one that is being answered is waited for; and one that begins like
 * another goes on from there. Forty clients ask for whatever they like at the
 * same time. In the end the program prints what they asked for, what was really
 * run, and how much time that saved; and it has compared every answer with the
 * one that the database gives directly.
 *
 * The address of the authority is the first argument, or VOW_STORE, and that is
 * all that changes from one process to a cluster: with "file:/some/folder" all
 * processes that are started with it share their work, and the next one finds
 * the results; with "redis://host" so do those of all hosts. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vow.h>

enum {
    ROWS = 20000,
    CLIENTS = 40,
    QUERIES = 6, /* of each client */
    REGIONS = 4,
    ORDERS = 2,
    GROUPS = 3, /* the first is none */
    KEEP_MS = 600000
};

static const char database[] = "file:sales?mode=memory&cache=shared";

/* A step: SQL where %s stands for what it reads. */
struct step {
    const char *label;
    const char *sql;
    int calls, runs;
    double ms; /* of its runs */
};

static struct step match[REGIONS] = {
    {.label = "match north", .sql = "SELECT * FROM %s WHERE region = 'north'"},
    {.label = "match east", .sql = "SELECT * FROM %s WHERE region = 'east'"},
    {.label = "match south", .sql = "SELECT * FROM %s WHERE region = 'south'"},
    {.label = "match west", .sql = "SELECT * FROM %s WHERE region = 'west'"}};
static struct step sort[ORDERS] = {
    {.label = "sort by day", .sql = "SELECT * FROM %s ORDER BY day, id"},
    {.label = "sort by amount", .sql = "SELECT * FROM %s ORDER BY amount, id"}};
static struct step group[GROUPS] = {
    {.label = NULL},
    {.label = "group by item",
     .sql = "SELECT item, count(*) AS n, sum(amount) AS amount FROM %s "
            "GROUP BY item ORDER BY item"},
    {.label = "group by day",
     .sql = "SELECT day, count(*) AS n, sum(amount) AS amount FROM %s "
            "GROUP BY day ORDER BY day"}};

static vow_loop *loop;
static vow_authority *authority;
static sqlite3 *sales; /* keeps the table in memory */
static uint64_t random_state = 1;
static int wrong;

static unsigned below(unsigned n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

/* ---- SQL: a table in, a table out, as lines of text -------------------- */

static void must(int rc, sqlite3 *db)
{
    if (rc == SQLITE_OK || rc == SQLITE_DONE || rc == SQLITE_ROW)
        return;
    fprintf(stderr, "%s\n", sqlite3_errmsg(db));
    exit(1);
}

/* The first line has the names of the columns. Freed by sqlite3_free(). */
static char *query(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *q;
    sqlite3_str *out = sqlite3_str_new(db);
    must(sqlite3_prepare_v2(db, sql, -1, &q, NULL), db);
    int n = sqlite3_column_count(q);
    for (int i = 0; i < n; i++)
        sqlite3_str_appendf(out, "%s%c", sqlite3_column_name(q, i),
                            i + 1 < n ? '\t' : '\n');
    int rc;
    while ((rc = sqlite3_step(q)) == SQLITE_ROW)
        for (int i = 0; i < n; i++)
            sqlite3_str_appendf(out, "%s%c", sqlite3_column_text(q, i),
                                i + 1 < n ? '\t' : '\n');
    must(rc, db);
    must(sqlite3_finalize(q), db);
    return sqlite3_str_finish(out);
}

/* What stands before the next `at`; NULL at the end. */
static char *cut(char **rest, char at)
{
    char *begin = *rest;
    char *end = begin == NULL ? NULL : strchr(begin, at);
    *rest = end == NULL ? NULL : end + 1;
    if (end != NULL)
        *end = '\0';
    return begin;
}

/* A table `input` of such lines; the text is cut into pieces on the way. */
static void load(sqlite3 *db, char *text)
{
    sqlite3_stmt *q;
    char *rest = text;
    char *head = cut(&rest, '\n');
    int columns = 0;
    sqlite3_str *create = sqlite3_str_new(db);
    sqlite3_str *insert = sqlite3_str_new(db);
    for (char *name; (name = cut(&head, '\t')) != NULL; columns++) {
        sqlite3_str_appendf(create, "%s%s NUMERIC", columns > 0 ? "," : "",
                            name);
        sqlite3_str_appendf(insert, "%s?", columns > 0 ? "," : "");
    }
    char *names = sqlite3_str_finish(create);
    char *marks = sqlite3_str_finish(insert);
    char *sql = sqlite3_mprintf("CREATE TABLE input(%s); BEGIN", names);
    must(sqlite3_exec(db, sql, NULL, NULL, NULL), db);
    sqlite3_free(sql);
    sql = sqlite3_mprintf("INSERT INTO input VALUES(%s)", marks);
    must(sqlite3_prepare_v2(db, sql, -1, &q, NULL), db);
    for (char *line; (line = cut(&rest, '\n')) != NULL && *line != '\0';) {
        for (int i = 1; i <= columns; i++)
            must(sqlite3_bind_text(q, i, cut(&line, '\t'), -1, SQLITE_STATIC),
                 db);
        must(sqlite3_step(q), db);
        must(sqlite3_reset(q), db);
    }
    must(sqlite3_finalize(q), db);
    sqlite3_free(sql);
    sqlite3_free(names);
    sqlite3_free(marks);
}

static sqlite3 *open_database(const char *name)
{
    sqlite3 *db;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI;
    must(sqlite3_open_v2(name, &db, flags, NULL), db);
    return db;
}

static void make_sales(void)
{
    sales = open_database(database);
    char *sql = sqlite3_mprintf(
        "CREATE TABLE sales(id, region, item, day, amount);"
        "WITH RECURSIVE r(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM r "
        "WHERE id < %d) INSERT INTO sales SELECT id, "
        "CASE id %% 4 WHEN 0 THEN 'north' WHEN 1 THEN 'east' WHEN 2 THEN "
        "'south' ELSE 'west' END, 'item ' || (id * 7919 %% 23), "
        "id * 104729 %% 365, id * 1299709 %% 1000 FROM r",
        ROWS);
    must(sqlite3_exec(sales, sql, NULL, NULL, NULL), sales);
    sqlite3_free(sql);
}

/* ---- a step, on a thread of the pool ----------------------------------- */

struct job {
    struct step *step;
    vow_bytes *input; /* counted; NULL: the table of sales */
    double ms;        /* that it took */
};

static double now_ms(void)
{
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static vow_next run_sql(vow_job *job, void *arg)
{
    struct job *j = arg;
    double began_ms = now_ms();
    bool first = j->input == NULL;
    sqlite3 *db = open_database(first ? database : ":memory:");
    if (!first) {
        char *text = sqlite3_mprintf("%.*s", (int)vow_bytes_size(j->input),
                                     (char *)vow_bytes_data(j->input));
        load(db, text);
        sqlite3_free(text);
    }
    char *sql = sqlite3_mprintf(j->step->sql, first ? "sales" : "input");
    char *rows = query(db, sql);
    vow_bytes *out;
    int rc = vow_bytes_new(vow_job_loop(job), rows, strlen(rows), &out);
    sqlite3_free(rows);
    sqlite3_free(sql);
    must(sqlite3_close(db), db);
    j->ms = now_ms() - began_ms;
    return rc < 0 ? vow_fail_code(rc, NULL) : vow_ok(vow_bytes_value(out));
}

static vow_next job_over(void *arg)
{
    struct job *j = arg;
    j->step->ms += j->ms;
    vow_bytes_unref(j->input);
    free(j);
    return vow_ok(vow_nothing());
}

/* The work of every step: whoever the authority picks does it. */
static vow_future *work(vow_lease *lease, vow_input *in, void *arg)
{
    struct step *step = arg;
    struct job *j = calloc(1, sizeof(*j));
    (void)lease;
    if (j == NULL)
        return vow_refused(loop, VOW_ENOMEM, NULL);
    step->runs++;
    *j =
        (struct job){.step = step, .input = vow_bytes_ref(vow_input_whole(in))};
    VOW_AUTO(vow_future) f = vow_work(loop, run_sql, j);
    return vow_finally(f, job_over, j);
}

/* ---- a query, and what it must give ------------------------------------ */

struct query {
    unsigned region, order, group;
};

/* Which beginnings were asked for. */
static bool matched[REGIONS], sorted[REGIONS][ORDERS],
    grouped[REGIONS][ORDERS][GROUPS];
static int beginnings;

static void count(bool *asked)
{
    beginnings += !*asked;
    *asked = true;
}

static size_t steps_of(const struct query *q, vow_pipe_step *steps,
                       vow_field *fields)
{
    struct step *row[] = {&match[q->region], &sort[q->order], &group[q->group]};
    size_t n = q->group == 0 ? 2 : 3;
    count(&matched[q->region]);
    count(&sorted[q->region][q->order]);
    if (n == 3)
        count(&grouped[q->region][q->order][q->group]);
    for (size_t i = 0; i < n; i++) {
        row[i]->calls++;
        fields[i] = vow_field_text(row[i]->sql);
        steps[i] = (vow_pipe_step){.fields = &fields[i],
                                   .n_fields = 1,
                                   .work = work,
                                   .arg = row[i],
                                   .label = row[i]->label};
    }
    return n;
}

/* The same as one statement, on the table itself. */
static char *ask_directly(const struct query *q)
{
    char *one = sqlite3_mprintf(match[q->region].sql, "sales");
    char *in = sqlite3_mprintf("(%s)", one);
    char *two = sqlite3_mprintf(sort[q->order].sql, in);
    char *inner = sqlite3_mprintf("(%s)", two);
    char *three =
        q->group == 0 ? NULL : sqlite3_mprintf(group[q->group].sql, inner);
    char *rows = query(sales, three == NULL ? two : three);
    sqlite3_free(one);
    sqlite3_free(in);
    sqlite3_free(two);
    sqlite3_free(inner);
    sqlite3_free(three);
    return rows;
}

static void compare(const struct query *q, vow_bytes *got)
{
    static char *expected[REGIONS][ORDERS][GROUPS];
    char **want = &expected[q->region][q->order][q->group];
    if (*want == NULL)
        *want = ask_directly(q);
    if (got == NULL || vow_bytes_size(got) != strlen(*want) ||
        memcmp(vow_bytes_data(got), *want, strlen(*want)) != 0)
        wrong++;
}

/* ---- clients ----------------------------------------------------------- */

static vow_next client(void *unused)
{
    (void)unused;
    for (int i = 0; i < QUERIES; i++) {
        struct query q = {below(REGIONS), below(ORDERS), below(GROUPS)};
        const int rows = ROWS;
        const vow_field table[] = {vow_field_text("sales"),
                                   {&rows, sizeof(rows)}};
        vow_pipe_step steps[3];
        vow_field fields[3];
        size_t n = steps_of(&q, steps, fields);
        VOW_AUTO(vow_future)
        answer = vow_pipeline_run(
            authority, steps, n,
            VOW_PIPELINE(.source = table, .n_source = 2,
                         .share = {.size = sizeof(vow_share_opts),
                                   .ttl_ms = KEEP_MS}),
            NULL);
        int rc = vow_await(answer);
        if (rc < 0) {
            fprintf(stderr, "%s\n", vow_error_message(vow_error_of(answer)));
            return vow_fail_code(rc, NULL);
        }
        compare(&q, vow_as_bytes(vow_get(answer)));
        (void)vow_sleep(loop, below(20));
    }
    return vow_ok(vow_nothing());
}

static int run_clients(void)
{
    vow_future *all[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        all[i] = vow_async(loop, client, NULL);
    VOW_AUTO(vow_future) done = vow_all(loop, all, CLIENTS);
    for (int i = 0; i < CLIENTS; i++)
        vow_future_unref(all[i]);
    return vow_loop_run_until(loop, done);
}

/* ---- the table --------------------------------------------------------- */

static int runs, calls;
static double saved_ms;

static void show(const struct step *s, size_t n)
{
    for (size_t i = 0; i < n; i++, s++) {
        double each = s->runs == 0 ? 0 : s->ms / s->runs;
        double saved = each * (s->calls - s->runs);
        if (s->label == NULL)
            continue;
        printf("%-16s %6d %6d", s->label, s->calls, s->runs);
        if (s->runs == 0) /* they were there: nobody here knows the price */
            printf(" %10s %10s\n", "-", "-");
        else
            printf(" %10.1f %10.0f\n", each, saved);
        calls += s->calls;
        runs += s->runs;
        saved_ms += saved;
    }
}

static void print_table(double took_ms)
{
    printf("%-16s %6s %6s %10s %10s\n", "step", "calls", "runs", "ms each",
           "ms saved");
    show(match, REGIONS);
    show(sort, ORDERS);
    show(group, GROUPS);
    printf("%-16s %6d %6d %10s %10.0f\n", "all", calls, runs, "", saved_ms);
    printf("%d clients had %d answers in %.0f ms\n", CLIENTS, CLIENTS * QUERIES,
           took_ms);
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("VOW_STORE");
    if (url == NULL)
        url = "memory:";
    make_sales();
    if (vow_loop_new(NULL, &loop) < 0)
        return 1;
    vow_future *opened = vow_authority_open(loop, url, NULL);
    int rc = vow_loop_run_until(loop, opened);
    if (rc < 0)
        fprintf(stderr, "%s\n", vow_error_message(vow_error_of(opened)));
    else
        authority = vow_authority_ref(vow_as_ptr(vow_get(opened)));
    vow_future_unref(opened);
    double began_ms = now_ms();
    if (rc == 0)
        rc = run_clients();
    if (rc == 0)
        print_table(now_ms() - began_ms);
    authority = vow_authority_unref(authority);
    vow_loop_run(loop);
    vow_loop_close(loop);
    bool empty = strcmp(url, "memory:") == 0; /* others may have some already */
    bool once = empty ? runs == beginnings : runs <= beginnings;
    if (rc == 0 && (wrong > 0 || !once))
        fprintf(stderr, "%d answers are wrong, %d runs of %d beginnings\n",
                wrong, runs, beginnings);
    return rc == 0 && wrong == 0 && once ? 0 : 1;
}
