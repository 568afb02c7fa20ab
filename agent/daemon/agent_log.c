#include "agent/daemon/agent.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "state/base/bytes/text.h"

void agent_log(const char *format, ...)
{
    char text[PROTOCOL_TEXT_MAX], when[32];
    struct timespec now;
    struct tm parts;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    text_make_safe(text, sizeof(text), text, strlen(text));
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    strftime(when, sizeof(when), "%F %T", &parts);
    fprintf(stderr, "%s.%03ld reseatd: %s\n", when, now.tv_nsec / 1000000, text);
}
