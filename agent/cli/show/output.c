#include "agent/cli/show/output.h"

#include <errno.h>
#include <libsmartcols.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "state/base/bytes/text.h"

json_t *output_object(const struct output *output, int status)
{
    return json_pack("{s:i, s:s, s:i}", "schema", OUTPUT_SCHEMA, "command", output->command,
                     "status", status);
}

static json_t *output_text_of(const char *bytes, size_t size)
{
    char *safe = malloc(size + 1);
    json_t *string = NULL;

    if (safe) {
        text_make_safe(safe, size + 1, bytes, size);
        string = json_string(safe);
    }
    free(safe);
    return string;
}

json_t *output_text(const char *value)
{
    return output_text_of(value, strlen(value));
}

static json_t *output_value_of(const msgpack_object *value)
{
    json_t *json;

    switch (value->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        return json_boolean(value->via.boolean);
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        return json_integer((json_int_t)(value->via.u64 & INT64_MAX));
    case MSGPACK_OBJECT_STR:
        return output_text_of(value->via.str.size ? value->via.str.ptr : "", value->via.str.size);
    case MSGPACK_OBJECT_ARRAY:
        json = json_array();
        for (uint32_t i = 0; i < value->via.array.size; i++)
            json_array_append_new(json, output_value_of(&value->via.array.ptr[i]));
        return json;
    case MSGPACK_OBJECT_MAP:
        json = json_object();
        for (uint32_t i = 0; i < value->via.map.size; i++) {
            const msgpack_object_kv *pair = &value->via.map.ptr[i];
            char key[PROTOCOL_WORD_MAX];
            if (pair->key.type == MSGPACK_OBJECT_STR && pair->key.via.str.size < sizeof(key)) {
                text_make_safe(key, sizeof(key), pair->key.via.str.ptr, pair->key.via.str.size);
                json_object_set_new(json, key, output_value_of(&pair->val));
            }
        }
        return json;
    default:
        return json_null();
    }
}

json_t *output_answer(const struct message *message)
{
    json_t *object = output_value_of(&message->root);

    json_object_del(object, "type");
    return object;
}

void output_add_members(json_t *object, const json_t *answer, const char *names)
{
    for (const char *at = names; *at; at += strspn(at, "[] ")) {
        char name[PROTOCOL_WORD_MAX];
        size_t length = strcspn(at, "[ ");
        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        at += length;
        json_t *value = json_object_get(answer, name);
        if (value)
            json_object_set(object, name, value);
        else
            json_object_set_new(object, name, *at == '[' ? json_array() : json_null());
    }
}

const char *member_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text ? text : "";
}

unsigned long long member_number(const json_t *object, const char *name)
{
    return (unsigned long long)json_integer_value(json_object_get(object, name));
}

bool member_bool(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

int output_print_members(const struct output *output, const json_t *answer, const char *names)
{
    json_t *object = output_object(output, STATUS_DONE);

    output_add_members(object, answer, names);
    return output_print(object, STATUS_DONE);
}

void output_add_error(json_t *object, const char *code, const char *message)
{
    json_object_set_new(object, "error",
                        json_pack("{s:s, s:o}", "code", code, "message", output_text(message)));
}

/** Flush standard output. On failure, print the reason and return false. */
static bool output_is_written(void)
{
    if (!fflush(stdout) && !ferror(stdout))
        return true;
    fprintf(stderr, "reseat: the output cannot be written: %s\n", strerror(errno));
    return false;
}

int output_done(void)
{
    return output_is_written() ? STATUS_DONE : STATUS_ROLLED_BACK;
}

int output_print(json_t *object, int status)
{
    bool bad = !object || json_dumpf(object, stdout, JSON_INDENT(2)) || putchar('\n') == EOF;

    json_decref(object);
    bad = !output_is_written() || bad;
    return bad && status == STATUS_DONE ? STATUS_ROLLED_BACK : status;
}

int output_status_of(const char *code)
{
    static const struct {
        const char *code;
        int status;
    } statuses[] = {
        {ERR_USAGE, STATUS_USAGE},     {ERR_AMBIGUOUS, STATUS_USAGE}, {ERR_NO_APP, STATUS_NONE},
        {ERR_NO_DEVICE, STATUS_NONE},  {ERR_NO_AGENT, STATUS_NONE},   {ERR_GONE, STATUS_NONE},
        {ERR_REFUSED, STATUS_REFUSED}, {ERR_EXPIRED, STATUS_EXPIRED},
    };

    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
        if (strcmp(statuses[i].code, code) == 0)
            return statuses[i].status;
    return STATUS_ROLLED_BACK;
}

const char *output_code_of(const char *result)
{
    return strcmp(result, RESULT_REFUSED) == 0   ? ERR_REFUSED
           : strcmp(result, RESULT_EXPIRED) == 0 ? ERR_EXPIRED
           : strcmp(result, RESULT_ENDED) == 0   ? ERR_GONE
                                                 : ERR_FAILED;
}

void words_add(struct words *words, const char *format, ...)
{
    va_list arguments;
    size_t room = sizeof(words->text) - words->used;

    va_start(arguments, format);
    int length = vsnprintf(words->text + words->used, room, format, arguments);
    va_end(arguments);
    if (length > 0) {
        /* Drivers can return any bytes as text. */
        char *added = words->text + words->used;
        text_make_safe(added, room, added, strlen(added));
        words->used += strlen(added);
    }
}

void words_add_names(struct words *words, const json_t *list, const char *between)
{
    const json_t *name;
    size_t i;

    json_array_foreach(list, i, name)
    {
        words_add(words, "%s%s", i ? between : "", json_string_value(name));
    }
}

void output_note(const struct output *output, const char *format, ...)
{
    char text[PROTOCOL_TEXT_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    text_make_safe(text, sizeof(text), text, strlen(text));
    fprintf(stderr, "reseat %s: %s\n", output->command, text);
}

void output_note_paths(const struct output *output, const struct paths *paths)
{
    if (paths->refused[0])
        output_note(output, "XDG_RUNTIME_DIR is not used: %.300s; the agent is that of %.300s",
                    paths->refused, paths->folder[0] ? paths->folder : "no folder");
}

static int output_fail_write(const struct output *output, const char *code, const char *message)
{
    int status = output_status_of(code);

    if (!output->json) {
        output_note(output, "%s", message);
        return status;
    }
    json_t *object = output_object(output, status);
    output_add_error(object, code, message);
    return output_print(object, status);
}

int output_fail(const struct output *output, const char *code, const char *format, ...)
{
    char message[PROTOCOL_TEXT_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    return output_fail_write(output, code, message);
}

int output_fail_message(const struct output *output, const struct message *message)
{
    char code[PROTOCOL_WORD_MAX], line[PROTOCOL_TEXT_MAX];

    if (!field_string(&message->root, "code", code, sizeof(code)) ||
        !field_text(&message->root, "message", line, sizeof(line))) {
        return output_fail_write(output, ERR_PROTOCOL,
                                 "the agent's answer is not understood; it may be of another "
                                 "release. Restart it: reseat agent stop, then reseat agent start");
    }
    return output_fail_write(output, code, line);
}

int output_fail_agent(const struct output *output, int error, const char *what)
{
    if (error == -ENOENT || error == -ECONNREFUSED) {
        return output_fail_write(
            output, ERR_NO_AGENT,
            "no agent runs for you; start one with reseat agent start, or a program with "
            "reseat run");
    }
    if (error == -EPIPE) {
        return output_fail(output, ERR_NO_AGENT,
                           "the agent ended before it could %s; programs run on. Start another "
                           "with reseat agent start, then see reseat ps",
                           what);
    }
    if (error == -ETIMEDOUT) {
        return output_fail(output, ERR_NO_AGENT,
                           "the agent does not answer when asked to %s; look into its log, or stop "
                           "it with reseat agent stop",
                           what);
    }
    if (error == -EPERM)
        return output_fail_write(output, ERR_DENIED,
                                 "the agent's socket is owned by another user; refused");
    return output_fail(output, ERR_FAILED, "cannot ask the agent to %s: %s", what,
                       strerror(-error));
}

int output_usage(const struct output *output, const char *format, ...)
{
    char what[512], message[PROTOCOL_TEXT_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    snprintf(message, sizeof(message), "%s; see reseat %s --help", what, output->command);
    return output_fail_write(output, ERR_USAGE, message);
}

const char *output_program(const json_t *program, char ret[OUTPUT_PROGRAM_MAX])
{
    snprintf(ret, OUTPUT_PROGRAM_MAX, "%s (pid %llu)", member_text(program, "name"),
             member_number(program, "pid"));
    return ret;
}

void output_add_users(const json_t *object, struct words *words)
{
    const json_t *app;
    size_t i;

    json_array_foreach(json_object_get(object, "apps"), i, app)
    {
        words_add(words, "%s%s(%llu)", i ? " " : "", member_text(app, "name"),
                  member_number(app, "pid"));
    }
}

const char *output_place(const char *name)
{
    return name[0] ? name : "host memory";
}

void output_moving(const json_t *move, struct words *words)
{
    unsigned long long done = member_number(move, "done"), total = member_number(move, "total");
    unsigned long long built = member_number(move, "built"), builds = member_number(move, "builds");
    const char *verb = member_text(move, "verb"), *kernel = member_text(move, "building");
    char have[32], all[32];

    if (!move)
        return;
    words_add(words, "%s %s",
              strcmp(verb, MSG_PREWARM) == 0  ? "being made ready for"
              : strcmp(verb, MSG_RESUME) == 0 ? "resuming on"
                                              : "moving to",
              output_place(member_text(move, "to")));
    if (builds) {
        words_add(words, ", %llu%%: building %llu of %llu programs", 100 * built / builds,
                  built < builds ? built + 1 : builds, builds);
        if (kernel[0])
            words_add(words, " (kernel %s)", kernel);
    } else if (total) {
        done = done < total ? done : total;
        bytes_text(done, have, sizeof(have));
        bytes_text(total, all, sizeof(all));
        words_add(words, ", %.0f%%: %s of %s copied", 100.0 * (double)done / (double)total, have,
                  all);
    } else if (member_text(move, "phase")[0]) {
        words_add(words, ": %s", member_text(move, "phase"));
    }
}

void output_link(const json_t *server, char *ret, size_t size)
{
    unsigned long long read = member_number(server, "read_bytes_s");
    unsigned long long write = member_number(server, "write_bytes_s");
    double least = (double)(read < write ? read : write), trip;

    trip = (double)member_number(server, "round_trip_ns") / 1e6;
    ret[0] = '\0';
    if (trip <= 0)
        return;
    int length = snprintf(ret, size, trip < 10 ? "%.2f ms" : "%.0f ms", trip);
    if (length <= 0 || (size_t)length >= size)
        return;
    if (least <= 0)
        snprintf(ret + length, size - (size_t)length, ", rate unknown");
    else
        snprintf(ret + length, size - (size_t)length,
                 least < 1e7   ? ", %.1f MB/s"
                 : least < 1e9 ? ", %.0f MB/s"
                               : ", %.1f GB/s",
                 least < 1e9 ? least / 1e6 : least / 1e9);
}

void output_seconds(uint64_t nanoseconds, char *ret, size_t size)
{
    double seconds = (double)nanoseconds / 1e9;

    if (seconds < 1)
        snprintf(ret, size, "%.1f ms", seconds * 1e3);
    else
        snprintf(ret, size, "%.2f s", seconds);
}

/** The next character and its size in bytes. One that the locale cannot print becomes '?'. */
static wchar_t output_next(const char *text, size_t *ret_size)
{
    mbstate_t state = {0};
    wchar_t character;
    size_t size = mbrtowc(&character, text, MB_CUR_MAX, &state);
    bool known = size && size <= MB_CUR_MAX && wcwidth(character) >= 0;

    *ret_size = known ? size : 1;
    return known ? character : L'?';
}

int output_columns(const char *text)
{
    int columns = 0;

    for (size_t size; *text; text += size)
        columns += wcwidth(output_next(text, &size));
    return columns;
}

void output_padded(const char *text, int width)
{
    int left = width - output_columns(text);

    for (size_t size; *text; text += size)
        printf("%lc", (wint_t)output_next(text, &size));
    printf("%*s", left > 0 ? left : 0, "");
}

void output_wrapped(FILE *to, int width, int used, int indent, const char *text)
{
    bool begins = true;

    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        int length = (int)strcspn(text, " ");
        if (!begins && used + 1 + length > width) {
            fprintf(to, "\n%*s", indent, "");
            used = indent;
        } else if (!begins) {
            fputc(' ', to);
            used++;
        }
        fprintf(to, "%.*s", length, text);
        used += length;
        text += length;
        begins = false;
    }
    fputc('\n', to);
}

struct table {
    const struct table_column *columns;
    size_t count;
    struct libscols_table *lines;
    struct libscols_line *last;
    uint32_t said; /* A bit for each column in which a line has text. */
};

struct table *table_create(const struct table_column *columns, size_t count)
{
    struct table *table = malloc(sizeof(*table));

    if (!table)
        return NULL;
    *table = (struct table){.columns = columns, .count = count, .lines = scols_new_table()};
    for (size_t i = 0; table->lines && i < count; i++) {
        scols_table_new_column(table->lines, columns[i].title, 0,
                               columns[i].right  ? SCOLS_FL_RIGHT
                               : columns[i].wrap ? SCOLS_FL_WRAP
                                                 : 0);
    }
    return table;
}

void table_put(struct table *table, size_t column, const char *text)
{
    if (!table || !table->last)
        return;
    scols_line_set_data(table->last, column, *text ? text : "-");
    if (*text)
        table->said |= 1u << column;
}

static void table_limit_text(const json_t *entry, const char *field, char *ret, size_t size)
{
    if (member_bool(entry, "drained")) {
        snprintf(ret, size, "drained");
    } else if (member_bool(entry, "draining")) {
        snprintf(ret, size, "draining in %llu s",
                 (member_number(entry, "drains_in_ns") + 999999999) / 1000000000);
    } else if (member_bool(entry, "limited")) {
        bytes_text(member_number(entry, field), ret, size);
    }
}

static void table_date_text(uint64_t ms, char *ret, size_t size)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm local;

    if (ms && localtime_r(&seconds, &local))
        strftime(ret, size, "%Y-%m-%d %H:%M", &local);
}

void table_add(struct table *table, const json_t *entry)
{
    if (!table || !table->lines)
        return;
    table->last = scols_table_new_line(table->lines, NULL);
    for (size_t i = 0; i < table->count; i++) {
        const char *field = table->columns[i].field;
        struct words words = {0};
        char text[64] = "";
        if (!field)
            continue;
        switch (table->columns[i].kind) {
        case TABLE_TEXT:
            table_put(table, i, member_text(entry, field));
            continue;
        case TABLE_NAMES:
            words_add_names(&words, json_object_get(entry, field), ",");
            table_put(table, i, words.text);
            continue;
        case TABLE_NUMBER:
            snprintf(text, sizeof(text), "%llu", member_number(entry, field));
            break;
        case TABLE_BYTES:
            bytes_text(member_number(entry, field), text, sizeof(text));
            break;
        case TABLE_LIMIT:
            table_limit_text(entry, field, text, sizeof(text));
            break;
        case TABLE_DATE:
            table_date_text(member_number(entry, field), text, sizeof(text));
            break;
        }
        /* A missing field is shown as "-", not as 0. */
        bool said = !json_is_null(json_object_get(entry, field));
        table_put(table, i, said ? text : "");
    }
}

/* Bytes of the longest text in a column, including its title. */
static size_t table_width(struct table *table, size_t column)
{
    size_t width = strlen(table->columns[column].title);

    for (size_t i = 0; i < scols_table_get_nlines(table->lines); i++) {
        const struct libscols_line *line = scols_table_get_line(table->lines, i);
        const char *text =
            scols_cell_get_data(scols_line_get_cell((struct libscols_line *)line, column));
        size_t length = text ? strlen(text) : 0;
        width = length > width ? length : width;
    }
    return width;
}

static void table_hide(struct table *table, size_t column)
{
    scols_column_set_flags(scols_table_get_column(table->lines, column), SCOLS_FL_HIDDEN);
}

static void table_fit_terminal(struct table *table)
{
    struct winsize size = {0};
    size_t width = 0;

    for (size_t i = 0; i < table->count; i++)
        if (i > 0 && !(table->said & 1u << i))
            table_hide(table, i);
        else
            width += table_width(table, i) + 1;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
        return;
    for (size_t i = table->count; width > size.ws_col + 1u && i-- > 1;) {
        if (table->columns[i].optional && table->said & 1u << i) {
            table_hide(table, i);
            width -= table_width(table, i) + 1;
        }
    }
}

int table_print(struct table *table)
{
    bool failed = !table || !table->lines;

    if (!failed && isatty(STDOUT_FILENO))
        table_fit_terminal(table);
    failed = failed || scols_print_table(table->lines);

    scols_unref_table(table ? table->lines : NULL);
    free(table);
    return failed ? STATUS_ROLLED_BACK : output_done();
}

int output_print_list(const struct output *output, json_t *object, const char *key,
                      const struct table_column *columns, size_t count, int status)
{
    const json_t *entry;
    size_t i;

    if (output->json)
        return output_print(object, status);
    struct table *table = table_create(columns, count);
    json_array_foreach(json_object_get(object, key), i, entry)
    {
        table_add(table, entry);
    }
    json_decref(object);
    return table_print(table) ? STATUS_ROLLED_BACK : status;
}
