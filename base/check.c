#include "base/check.h"

#include <stdlib.h>

#include "base/log.h"

_Noreturn void check_failed(const char *file, int line, const char *expression)
{
    LOG_ERROR("%s:%d: check failed: %s", file, line, expression);
    abort();
}
