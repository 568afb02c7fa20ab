#include "remote/identity/revoked.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "remote/identity/private_file.h"

/* 15,000 certificates and more. */
#define LIST_MAX (1u << 20)

/** Length of a serial number that begins a line as it should be; 0: it does not. */
static size_t revoked_line_serial(const char *line, size_t length)
{
    size_t serial = strspn(line, "0123456789abcdef");

    if (!serial || serial >= CERTIFICATE_SERIAL_MAX || serial + 1 >= length || line[serial] != ' ')
        return 0;
    return serial;
}

int revoked_find(const char *bytes, size_t size, const char *serial)
{
    size_t wanted = strlen(serial);
    int result = 0;

    for (size_t at = 0; at < size;) {
        const char *line = bytes + at, *end = memchr(line, '\n', size - at);
        size_t found = end ? revoked_line_serial(line, (size_t)(end - line)) : 0;
        /* Also a list that was cut, or that somebody wrote into by hand, in a line further down. */
        if (!found)
            return -EINVAL;
        if (found == wanted && memcmp(line, serial, wanted) == 0)
            result = -EKEYREVOKED;
        at += (size_t)(end - line) + 1;
    }
    return result;
}

int revoked_check(const char *path, const char *serial, char ret_problem[FOLDER_PROBLEM_MAX])
{
    char *bytes;
    size_t size;
    int error = private_file_read(path, LIST_MAX, &bytes, &size, ret_problem);

    if (error)
        return error;
    error = revoked_find(bytes, size, serial);
    if (error == -EINVAL)
        snprintf(ret_problem, FOLDER_PROBLEM_MAX, "%.400s is damaged", path);
    private_file_free(bytes, size);
    return error;
}
