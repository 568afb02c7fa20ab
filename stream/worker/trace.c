#include "stream/worker/trace.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "state/base/compiler.h"

#define LINE_MAX_BYTES 160

static const char *const names[CHOOSE_STAGES] = {"pack", "write", "compute", "read", "unpack"};

/* One write to a file opened for appending: lines of several workers do not mix. */
static void trace_line(const char *format, ...) PRINTF(1, 2);
static void trace_line(const char *format, ...)
{
    static int fd = -2;
    char line[LINE_MAX_BYTES];
    const char *path = getenv("RESEAT_STREAM_TRACE");
    if (fd == -2)
        fd = path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (length > 0 && length < (int)sizeof(line))
        (void)!write(fd, line, (size_t)length);
}

void trace_payload(enum choose_stage stage, uint64_t begin_ns, uint64_t end_ns, uint64_t first,
                   uint64_t records)
{
    trace_line("%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", names[stage], begin_ns,
               end_ns, first, records);
}

void trace_chosen(const uint32_t payloads[CHOOSE_STAGES])
{
    trace_line("chosen %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n",
               payloads[CHOOSE_PACK], payloads[CHOOSE_WRITE], payloads[CHOOSE_COMPUTE],
               payloads[CHOOSE_READ], payloads[CHOOSE_UNPACK]);
}

bool trace_payloads(uint32_t ret_payloads[CHOOSE_STAGES])
{
    const char *text = getenv("RESEAT_STREAM_PAYLOADS");
    uint32_t last = 0;
    for (size_t i = 0; i < CHOOSE_STAGES; i++) {
        char *end = NULL;
        unsigned long records = text && *text ? strtoul(text, &end, 10) : last;
        if (records == 0 || records > UINT32_MAX)
            return false;
        ret_payloads[i] = last = (uint32_t)records;
        if (end && *end && *end != ',')
            return false;
        if (end)
            text = *end == ',' ? end + 1 : "";
    }
    return true;
}
