/* SPDX-License-Identifier: MIT */
/* job.h - one job: its items, its tries, and what it wrote.
 *
 *   job_run()    asks the gate, which calls for a process for every try
 *     a try      pipes, environment, process; ends when the process has ended
 *   `done`       told once, when it has ended for good
 *
 * Between a failed try and the next it holds nothing of the limits: that is how
 * vow_gate_run() retries.
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

/* What all jobs of a run share. */
struct jobs {
    vow_loop *loop;
    const struct settings *settings;
    vow_gate *gate;
    struct template *template;
    char *program; /* the path; NULL: it depends on the job */
    bool inherit;  /* a job has our stdin, stdout and stderr */
    int tty;       /* --tty: the stdin of a job, which has our foreground; 0:
                      a job has none */
    void (*on_start)(struct job *j);     /* a try was started */
    void (*on_last_end)(struct job *j);  /* the process of its last try ended */
    void (*on_end)(void);                /* the process of any try has ended */
    void (*on_store_down)(vow_error *e); /* no place in the pool is to be had */

    struct job *live; /* of which done was not told */
    size_t retrying;  /* of these, wait for another try */
    struct job *spare;
    bool *slots; /* in use */
    size_t n_slots;
    char **env; /* of a job: ours, then what is added */
    size_t n_env;
    struct command command;
    struct spans spans; /* of the job that was asked about last */
    int null;           /* /dev/null */
};

struct job {
    struct jobs *jobs;
    struct job *prev, *next;
    struct items items;
    uint64_t seq;
    size_t index;  /* in the map */
    uint32_t slot; /* from 1; 0: none */
    uint32_t tries;
    uint32_t weight;
    struct proc proc;
    struct stream out, err;
    int retry_after;       /* our end of that pipe; -1: none */
    vow_deferred *attempt; /* the try that runs */
    vow_future *whole;     /* of the gate; while it is live */
    vow_deferred *late; /* somebody waits for the process after the deadline */
    bool started;       /* once at least */
    bool unrun;         /* stopped before its first try */
    bool stopped;       /* no more tries */
    bool retrying;      /* waits for another try */
    bool lost;          /* its place in the pool; it is ended */
    vow_call lack_call; /* its try lacked descriptors or processes */
    uint64_t lacks_ns;  /* since when, while nothing ran; 0: it does not */
    bool counted;       /* by those who count */
    bool counted_ahead;
    uint64_t due_us; /* its deadline since 1970; 0: none */
    struct end end;
    unsigned char hash[16];
    bool again; /* it failed in an earlier run */
};

void jobs_open(struct jobs *js);

/* The limits of a run, with the pool behind them if there is one. */
vow_gate_opts job_limits(const struct settings *s);

/* A job without items, and back. */
struct job *job_new(struct jobs *js);
void job_free(struct job *j);

/* Run it; the future, owned, is fulfilled with vow_ptr(job) when it has ended
 * for good, however. */
vow_future *job_run(struct job *j);
/* End it: what runs gets `number` (0: as the kill sequence says), what waits is
 * canceled. */
void job_stop(struct job *j, int number);

/* Valid until the next job is asked about. */
struct fields job_fields(const struct job *j);
bool job_failed(const struct job *j);
/* 0 to 255: as a shell would say it. */
int job_exit_code(const struct job *j);
/* The same for people: "exit 3", "killed by TERM", "timed out",
 * "wanted the terminal", "lost its place". */
const char *job_end_text(const struct job *j, char *into, size_t room);
void job_record(struct job *j, struct text *command, struct record *ret);

#endif
