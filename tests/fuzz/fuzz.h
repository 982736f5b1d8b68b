/* A fuzz target is one function, as libFuzzer wants it. Built with the preset libfuzzer it runs
 * under libFuzzer, else under the driver of fuzz_driver.c. */
#ifndef BATON_TESTS_FUZZ_FUZZ_H
#define BATON_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Must come back, in less than a second, whatever the bytes are. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Words that mean something to the target, for the driver to put into inputs; ends with NULL. */
extern const char *const fuzz_words[];

#endif
