/* The parts of `baton bench`; as in commands.h. */
#ifndef BATON_OPS_BATON_BENCH_COMMANDS_H
#define BATON_OPS_BATON_BENCH_COMMANDS_H

int bench_grammar(int argc, char **argv);
int bench_kernels(int argc, char **argv);
int bench_model(int argc, char **argv);
int bench_placement(int argc, char **argv);
int bench_text(int argc, char **argv);
int bench_transfer(int argc, char **argv);

#endif
