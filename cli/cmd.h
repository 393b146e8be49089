/* SPDX-License-Identifier: MIT */
/* cmd.h - the verbs. Each gets its own words and returns the exit code. */
#ifndef VOW_CLI_CMD_H
#define VOW_CLI_CMD_H

int cmd_map(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_help(int argc, char **argv);
int cmd_completion(int argc, char **argv);

#endif
