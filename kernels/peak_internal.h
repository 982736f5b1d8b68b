/* The loops behind peak.h, one file an instruction set. */
#ifndef BATON_KERNELS_PEAK_INTERNAL_H
#define BATON_KERNELS_PEAK_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

/* Chains of every loop: the slowest of these instructions, vdpbf16ps, has a latency of 6 and two
 * start in a cycle. */
enum { PEAK_CHAINS = 12 };
#define PEAK_EACH_CHAIN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

/* Bytes ahead of the reading; farther than the hardware's own prefetch looks. */
enum { STREAM_PREFETCH_BYTES = 1024 };

double peak_f32__ref(uint64_t rounds);
double peak_int8__ref(uint64_t rounds);
uint64_t stream_read__ref(const void *data, size_t bytes);
enum { PEAK_REF_LANES = 64 };

double peak_f32__avx2(uint64_t rounds);
double peak_int8__avx2(uint64_t rounds);
uint64_t stream_read__avx2(const void *data, size_t bytes);

double peak_f32__avx512(uint64_t rounds);
double peak_int8__avx512vnni(uint64_t rounds);
/* A round is a group of every chain. */
enum { PEAK_GROUP_STEPS = 8 };
double peak_int8_groups__avx512vnni(uint64_t rounds);
double peak_int8_offsets__avx512vnni(uint64_t rounds);
uint64_t stream_read__avx512(const void *data, size_t bytes);
double peak_bf16__avx512bf16(uint64_t rounds);

#endif
