/* The two ways crc32c is computed, for hash.c and its test. Both take and give the running value
 * without the final inversion. */
#ifndef BATON_BASE_HASH_INTERNAL_H
#define BATON_BASE_HASH_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t crc32c_portable(uint32_t state, const uint8_t *data, size_t bytes);
/* Only where crc32c_has_instruction says so. */
uint32_t crc32c_instruction(uint32_t state, const uint8_t *data, size_t bytes);
bool crc32c_has_instruction(void);

#endif
