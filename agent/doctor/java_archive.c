#include "agent/doctor/inspection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/base/cleanup.h"

/*
 * Java's archives are zip files: the names in one are in a table at its end, and say which binding
 * of OpenCL it brings. Anything in the file may be damaged.
 */

#define TAIL_MAX       (65536 + 22)
#define TABLE_MAX      (16u << 20)
#define END_SIZE       22
#define ENTRY_SIZE     46
#define ENTRY_NAME     28 /* Where an entry has the length of its name. */
#define LIBRARY_PATH   "-Djava.library.path="
#define END_SIGNATURE  "PK\x05\x06"
#define FILE_SIGNATURE "PK\x03\x04"

static uint32_t read2(const unsigned char *at)
{
    return at[0] | (uint32_t)at[1] << 8;
}

static uint32_t read4(const unsigned char *at)
{
    return read2(at) | read2(at + 2) << 16;
}

bool java_is_archive(const char *path)
{
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char begin[4];

    return fd >= 0 && read(fd, begin, sizeof(begin)) == sizeof(begin) &&
           memcmp(begin, FILE_SIGNATURE, sizeof(begin)) == 0;
}

/** The table of names, to be freed; NULL where there is none. */
static unsigned char *read_table(const char *path, size_t *ret_size)
{
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    CLEANUP(cleanup_free) unsigned char *tail = malloc(TAIL_MAX);
    struct stat now;

    if (fd < 0 || !tail || fstat(fd, &now) || !S_ISREG(now.st_mode))
        return NULL;
    off_t begin = now.st_size > TAIL_MAX ? now.st_size - TAIL_MAX : 0;
    ssize_t size = pread(fd, tail, TAIL_MAX, begin);
    for (ssize_t at = size - END_SIZE; at >= 0; at--) {
        if (memcmp(tail + at, END_SIGNATURE, 4))
            continue;
        uint32_t length = read4(tail + at + 12);
        unsigned char *table = length <= TABLE_MAX ? malloc((size_t)length + 1) : NULL;
        ssize_t got = table ? pread(fd, table, length, read4(tail + at + 16)) : -1;
        if (got < 0) {
            free(table);
            return NULL;
        }
        *ret_size = (size_t)got;
        return table;
    }
    return NULL;
}

static bool concerns_opencl(const char *name, size_t length)
{
    static const char *const signs[] = {"opencl", "jocl", "aparapi"};

    for (size_t i = 0; i < ARRAY_SIZE(signs); i++) {
        size_t size = strlen(signs[i]);
        for (size_t at = 0; at + size <= length; at++)
            if (strncasecmp(name + at, signs[i], size) == 0)
                return true;
    }
    return false;
}

static void look_at_archive(struct inspection *inspection, const char *path)
{
    size_t size = 0;
    CLEANUP(cleanup_free) unsigned char *table = read_table(path, &size);

    for (size_t at = 0; table && at + ENTRY_SIZE <= size;) {
        size_t length = read2(table + at + ENTRY_NAME);
        const char *name = (const char *)table + at + ENTRY_SIZE;
        if (length > size - at - ENTRY_SIZE)
            return;
        if (concerns_opencl(name, length)) {
            inspection_say(
                inspection, "ok",
                "%s has %.*s in it, a binding that opens libOpenCL at run time: road ICD", path,
                (int)length, name);
            inspection->opens = true;
            return;
        }
        at += ENTRY_SIZE + length + read2(table + at + ENTRY_NAME + 2) +
              read2(table + at + ENTRY_NAME + 4);
    }
}

/** Each part of "a:b:c": an archive, or a folder of libraries. */
static int look_at_list(struct inspection *inspection, const char *list, bool libraries)
{
    CLEANUP(cleanup_free) char *copy = strdup(list);
    char *rest = copy;
    int error = copy ? 0 : -ENOMEM;

    for (char *part = copy ? strsep(&rest, ":") : NULL; part && !error; part = strsep(&rest, ":"))
        if (libraries)
            error = linkage_libraries(inspection, *part ? part : ".", "");
        else
            look_at_archive(inspection, part);
    return error;
}

int java_program(struct inspection *inspection, char *const *arguments)
{
    static const char *const with_path[] = {"-jar", "-cp", "-classpath", "--class-path"};
    const char *classes = getenv("CLASSPATH");
    int error = classes ? look_at_list(inspection, classes, false) : 0;

    for (size_t i = 0; arguments[i] && !error; i++) {
        if (strncmp(arguments[i], LIBRARY_PATH, strlen(LIBRARY_PATH)) == 0) {
            error = look_at_list(inspection, arguments[i] + strlen(LIBRARY_PATH), true);
            continue;
        }
        for (size_t j = 0; j < ARRAY_SIZE(with_path) && !error; j++)
            if (strcmp(arguments[i], with_path[j]) == 0 && arguments[i + 1])
                error = look_at_list(inspection, arguments[i + 1], false);
    }
    inspection->machine = true;
    return error;
}
