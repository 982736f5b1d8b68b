/* CHECK is always on: boundaries and states. DCHECK is for inner loops, on in debug builds only. */
#ifndef BATON_BASE_CHECK_H
#define BATON_BASE_CHECK_H

/* Logs file, line and expression, then aborts. */
_Noreturn void check_failed(const char *file, int line, const char *expression);

#define CHECK(expression) ((expression) ? (void)0 : check_failed(__FILE__, __LINE__, #expression))

#ifdef BATON_DEBUG
#define DCHECK(expression) CHECK(expression)
#else
#define DCHECK(expression) ((void)sizeof(!(expression)))
#endif

#define ARRAY_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
