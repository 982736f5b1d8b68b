/* The subcommands of `baton`. Each gets its own argc and argv ([0] is "baton NAME") and returns the
 * exit code: 0 done, 1 failed (one sentence on stderr), 2 usage. */
#ifndef BATON_OPS_BATON_COMMANDS_H
#define BATON_OPS_BATON_COMMANDS_H

int command_up(int argc, char **argv);
int command_run(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_detokenize(int argc, char **argv);
int command_render(int argc, char **argv);
int command_convert(int argc, char **argv);
int command_make_model(int argc, char **argv);
int command_ask(int argc, char **argv);

#endif
