/* SPDX-License-Identifier: MIT */
/* cmd.h - the verbs. argv[0] is the verb; each returns the exit code. */
#ifndef VOW_CLI_CMD_H
#define VOW_CLI_CMD_H

struct verb_def;
extern const struct verb_def share_verb;
extern const struct verb_def pipe_verb;
extern const struct verb_def lock_verb;
extern const struct verb_def status_verb;
extern const struct verb_def limit_verb;
extern const struct verb_def result_verb;
extern const struct verb_def forget_verb;
extern const struct verb_def cancel_verb;
extern const struct verb_def resolve_verb;
extern const struct verb_def doctor_verb;

int cmd_map(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_share(int argc, char **argv);
int cmd_pipe(int argc, char **argv);
int cmd_lock(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_limit(int argc, char **argv);
int cmd_result(int argc, char **argv);
int cmd_forget(int argc, char **argv);
int cmd_cancel(int argc, char **argv);
int cmd_resolve(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_help(int argc, char **argv);
int cmd_completion(int argc, char **argv);

#endif
