#include "simulate/sim_csv.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

int sim_csv_refuse(struct sim_csv *csv, const char *format, ...)
{
    va_list arguments;
    int length = snprintf(csv->error, SIM_ERROR, "%s:%u: ", csv->path, csv->line);

    if (length > 0 && length < SIM_ERROR) {
        va_start(arguments, format);
        vsnprintf(csv->error + length, SIM_ERROR - (size_t)length, format, arguments);
        va_end(arguments);
    }
    return -EINVAL;
}

/* One line without its end. Returns 1, 0 at the end of the file, or -EINVAL. */
static int sim_csv_read_line(struct sim_csv *csv)
{
    size_t length = 0;
    int byte;

    csv->line++;
    while ((byte = getc(csv->file)) != EOF && byte != '\n') {
        if (length + 1 == sizeof(csv->text))
            return sim_csv_refuse(csv, "the line is longer than %d bytes", SIM_LINE_MAX - 1);
        if ((byte < ' ' && byte != '\r') || byte == '"' || byte == 0x7f) {
            return sim_csv_refuse(
                csv, "there is a byte 0x%02x: only plain text without quotes is read", byte);
        }
        csv->text[length++] = (char)byte;
    }
    if (ferror(csv->file))
        return sim_csv_refuse(csv, "it cannot be read: %s", strerror(errno));
    if (byte == EOF && !length)
        return 0;
    length -= length && csv->text[length - 1] == '\r';
    csv->text[length] = '\0';
    return 1;
}

int sim_csv_open(struct sim_csv *csv, const char *path, const char *header, char *ret_error)
{
    *csv = (struct sim_csv){.path = path, .header = header, .count = 1, .error = ret_error};
    for (const char *at = header; *at; at++)
        csv->count += *at == ',';
    csv->file = fopen(path, "re");
    if (!csv->file) {
        snprintf(ret_error, SIM_ERROR, "%s cannot be opened: %s", path, strerror(errno));
        return -EINVAL;
    }
    int got = sim_csv_read_line(csv);
    if (got < 0)
        return got;
    if (!got || strcmp(csv->text, header))
        return sim_csv_refuse(csv, "the header is not \"%s\"", header);
    return 0;
}

void sim_csv_close(struct sim_csv *csv)
{
    if (csv->file)
        fclose(csv->file);
    csv->file = NULL;
}

int sim_csv_next(struct sim_csv *csv)
{
    int got = sim_csv_read_line(csv);
    size_t count = 0;

    if (got <= 0)
        return got;
    char *rest = csv->text;
    do {
        char *field = strsep(&rest, ",");
        if (count < csv->count)
            csv->fields[count] = field;
        count++;
    } while (rest);
    if (count != csv->count) {
        return sim_csv_refuse(csv, "%zu field%s instead of %zu", count, count == 1 ? "" : "s",
                              csv->count);
    }
    return 1;
}

/* The header's word for a field, into @ret (64 bytes). */
static const char *sim_csv_word(const struct sim_csv *csv, size_t field, char *ret)
{
    const char *at = csv->header;

    for (; field; field--)
        at += strcspn(at, ",") + 1;
    snprintf(ret, 64, "%.*s", (int)strcspn(at, ","), at);
    return ret;
}

bool sim_parse(const char *text, unsigned places, uint64_t most, uint64_t *ret_value)
{
    bool point = false, digit = false;
    uint64_t value = 0;

    for (; *text; text++) {
        if (*text == '.' && digit && !point && places && text[1]) {
            point = true;
            continue;
        }
        if (*text < '0' || *text > '9' || (point && !places) || value > UINT64_MAX / 10 - 1)
            return false;
        places -= point;
        digit = true;
        value = value * 10 + (uint64_t)(*text - '0');
    }
    for (; places && value <= UINT64_MAX / 10; places--)
        value *= 10;
    if (!digit || places || value > most)
        return false;
    *ret_value = value;
    return true;
}

int sim_csv_number(struct sim_csv *csv, size_t field, uint64_t least, uint64_t most,
                   uint64_t *ret_value)
{
    char word[64];
    uint64_t value;

    if (!sim_parse(csv->fields[field], 0, most, &value) || value < least) {
        return sim_csv_refuse(csv, "%s is \"%.40s\", not a whole number from %llu to %llu",
                              sim_csv_word(csv, field, word), csv->fields[field],
                              (unsigned long long)least, (unsigned long long)most);
    }
    *ret_value = value;
    return 0;
}

int sim_csv_thousandths(struct sim_csv *csv, size_t field, uint64_t least, uint64_t most,
                        uint64_t *ret_value)
{
    char word[64];
    uint64_t value;

    if (!sim_parse(csv->fields[field], 3, most, &value) || value < least) {
        return sim_csv_refuse(csv,
                              "%s is \"%.40s\", not a number from %.3g to %.6g with at most 3 "
                              "places",
                              sim_csv_word(csv, field, word), csv->fields[field],
                              (double)least / 1000, (double)most / 1000);
    }
    *ret_value = value;
    return 0;
}
