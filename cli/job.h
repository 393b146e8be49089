/* SPDX-License-Identifier: MIT */
/* job.h - one job: the items, the attempts, and the output.
 *
 *   job_run()    asks the gate, which calls for a process for every attempt
 *     attempt    pipes, environment, process; ends when the process has ended
 *   the future   fulfilled once, when the job has ended for good
 *
 * Between a failed attempt and the next, a job holds no permit of any limit:
 * vow_gate_run() retries in this way.
 */
#ifndef VOW_CLI_JOB_H
#define VOW_CLI_JOB_H

#include "input.h"
#include "proc.h"
#include "record.h"
#include "settings.h"
#include "stream.h"
#include "template.h"

struct job;

/* The state that all jobs of a run share. */
struct jobs {
    vow_loop *loop;
    const struct settings *settings;
    vow_gate *gate;
    struct template *template;
    char *program;                       /* path; NULL: depends on the job */
    bool inherit;                        /* jobs have vow's stdin and output */
    int tty;                             /* --tty: the terminal, stdin of a job
                                            in the foreground; 0: no --tty */
    void (*on_start)(struct job *j);     /* an attempt was started */
    void (*on_last_end)(struct job *j);  /* the last attempt ended */
    void (*on_end)(void);                /* an attempt ended */
    void (*on_store_down)(vow_error *e); /* the store gives no pool permits */

    struct job *live; /* list of jobs that have not ended for good */
    size_t retrying;  /* jobs in `live` that wait for another attempt */
    struct job *spare;
    bool *slots; /* per slot: whether a job has the slot */
    size_t n_slots;
    char **env; /* environment of a job: of vow, then added variables */
    size_t n_env;
    struct command command;
    struct spans spans; /* result of the last job_fields() */
    int null;           /* /dev/null */
};

struct job {
    struct jobs *jobs;
    struct job *prev, *next;
    struct items items;
    uint64_t seq;
    size_t index;  /* index in the mapping */
    uint32_t slot; /* slot number from 1; 0: none */
    uint32_t tries;
    uint32_t weight;
    struct proc proc;
    struct stream out, err;
    int retry_after;       /* vow's end of VOW_RETRY_AFTER_FD; -1: none */
    vow_deferred *attempt; /* the running attempt */
    vow_future *whole;     /* the gate's future, while the job is in `live` */
    vow_deferred *late;    /* fulfilled at the end, after the deadline */
    bool started;          /* an attempt was started, at least once */
    bool unrun;            /* stopped before the first attempt */
    bool stopped;          /* no further attempts */
    bool retrying;         /* waits for another attempt */
    bool lost;             /* the pool permit was lost; being ended */
    vow_call lack_call;    /* starts an attempt again that lacked descriptors or
                              processes */
    uint64_t lacks_ns;     /* begin of a lack while no process ran, by the
                              loop's clock; 0: no lack */
    bool counted;          /* counted by map_count() */
    bool counted_ahead;
    uint64_t due_us; /* deadline in microseconds since 1970; 0: none */
    struct end end;
    unsigned char hash[16];
    bool again; /* the same job failed in an earlier run */
};

void jobs_open(struct jobs *js);

/* Returns the limits of a run, with the pool behind the limits if a pool is
 * used. */
vow_gate_opts job_limits(const struct settings *s);

/* Allocates a job without items, and frees a job. */
struct job *job_new(struct jobs *js);
void job_free(struct job *j);

/* Runs the job. The future, owned, is fulfilled with vow_ptr(job) when the job
 * has ended for good, also if the job failed. */
vow_future *job_run(struct job *j);
/* Ends the job. A running process gets the signal `number` (0: the kill
 * sequence begins); a waiting job is canceled. */
void job_stop(struct job *j, int number);

/* Returns the items and fields of the job, valid until the next call. */
struct fields job_fields(const struct job *j);
bool job_failed(const struct job *j);
/* Returns 0 to 255, as a shell reports the end of the job. */
int job_exit_code(const struct job *j);
/* Writes the end of the job for people: "exit 3", "killed by TERM", "timed
 * out", "wanted the terminal", "lost its pool permit". Returns `into`. */
const char *job_end_text(const struct job *j, char *into, size_t room);
void job_record(struct job *j, struct text *command, struct record *ret);

#endif
