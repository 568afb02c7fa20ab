#include "tests/support/cases.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/support/cases_run.h"

/* For a benchmark, which uses the checks outside a test. */
static atomic_bool none_failed;
static atomic_bool *own_failed = &none_failed;
static unsigned own_number;
static void (*at_end)(void);

void cases_begin(atomic_bool *failed, unsigned number)
{
    own_failed = failed;
    own_number = number;
}

unsigned cases_number(void)
{
    return own_number;
}

static void ends(void)
{
    void (*end)(void) = at_end;

    at_end = NULL;
    if (end)
        end();
}

void cases_at_end(void (*end)(void))
{
    if (!at_end)
        atexit(ends);
    at_end = end;
}

void cases_fail(const char *file, int line, const char *what, const char *format, ...)
{
    char text[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "%s:%d: failed: %s%s\n", file, line, what, text);
    atomic_store(own_failed, true);
}

bool cases_are_same(const char *a, const char *b)
{
    if (strcmp(a, b) != 0)
        fprintf(stderr, "\"%s\"\n\"%s\"\n", a, b);
    return strcmp(a, b) == 0;
}

/* Not exit(): how a program ends beside its drivers' handlers is what test_ending.c tries. */
void cases_end(void)
{
    ends();
    fflush(NULL);
    _Exit(atomic_load(own_failed));
}

void cases_skip(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("skipped: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    cases_end();
}
