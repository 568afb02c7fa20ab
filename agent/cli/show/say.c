#include "agent/cli/show/say.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#include "state/base/bytes/text.h"
#include "state/base/clock.h"

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

/** Append a text as it is, as words_add() does. */
static void words_put(struct words *words, const char *text, size_t length)
{
    text_make_safe(words->text + words->used, sizeof(words->text) - words->used, text, length);
    words->used += strlen(words->text + words->used);
}

const char *say_program(const json_t *program, char ret[SAY_PROGRAM_MAX])
{
    snprintf(ret, SAY_PROGRAM_MAX, "%s (pid %llu)", member_text(program, "name"),
             member_number(program, "pid"));
    return ret;
}

void say_duration(uint64_t nanoseconds, char *ret, size_t size)
{
    double seconds = (double)nanoseconds / 1e9;

    if (seconds < 1)
        snprintf(ret, size, "%.1f ms", seconds * 1e3);
    else if (seconds < 120)
        snprintf(ret, size, "%.2f s", seconds);
    else if (seconds < 7200)
        snprintf(ret, size, "%.0f min", seconds / 60);
    else
        snprintf(ret, size, "%.1f h", seconds / 3600);
}

/* ---- templates ---- */

/** True if @name is @unit or ends with "_@unit". */
static bool say_is(const char *name, const char *unit)
{
    size_t length = strlen(name), tail = strlen(unit);

    return length >= tail && strcmp(name + length - tail, unit) == 0 &&
           (length == tail || strchr("_.", name[length - tail - 1]));
}

/** Append a number in the unit of @name; without a unit "us" (of ns) and "gb" (of bytes). */
static void say_number(struct words *words, uint64_t number, const char *name)
{
    time_t seconds = (time_t)(number / 1000);
    double value = (double)number;
    char text[64] = "";
    struct tm local;

    if (say_is(name, "bytes_per_ms"))
        snprintf(text, sizeof(text), "%g GB/s", value / 1e6);
    else if (say_is(name, "ns"))
        say_duration(number, text, sizeof(text));
    else if (say_is(name, "ms"))
        say_duration(number * NS_PER_MS, text, sizeof(text));
    else if (say_is(name, "bytes") || say_is(name, "bytes_s"))
        bytes_text(number, text, sizeof(text));
    else if (say_is(name, "permil"))
        snprintf(text, sizeof(text), "%.0f%%", value / 10);
    else if (say_is(name, "mw"))
        snprintf(text, sizeof(text), "%.1f W", value / 1e3);
    else if (say_is(name, "seconds"))
        snprintf(text, sizeof(text), "%.0f s", ceil(value / 1e9));
    else if (say_is(name, "us"))
        snprintf(text, sizeof(text), "%.1f", value / 1e3);
    else if (say_is(name, "gb"))
        snprintf(text, sizeof(text), "%.1f", value / 1e9);
    else if (!say_is(name, "date") && !say_is(name, "timestamp"))
        snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    else if (number && localtime_r(&seconds, &local))
        (void)!strftime(text, sizeof(text), say_is(name, "date") ? "%Y-%m-%d %H:%M" : "%FT%T",
                        &local);
    words_put(words, text, strlen(text));
    if (say_is(name, "bytes_s"))
        words_add(words, "/s");
}

static void say_value(struct words *words, const json_t *value, const char *name)
{
    char program[SAY_PROGRAM_MAX];
    const json_t *item;
    size_t i;

    if (json_is_string(value) && !json_string_length(value) && say_is(name, "place"))
        words_add(words, "host memory");
    else if (json_is_string(value))
        words_put(words, json_string_value(value), json_string_length(value));
    else if (json_is_integer(value))
        say_number(words, (uint64_t)json_integer_value(value), name);
    else if (json_is_real(value))
        words_add(words, "%g", json_real_value(value));
    else if (json_is_object(value))
        words_add(words, "%s", say_program(value, program));
    json_array_foreach(value, i, item)
    {
        words_add(words, "%s", !i ? "" : say_is(name, "list") ? "," : ", ");
        say_value(words, item, name);
    }
}

static bool say_is_set(const json_t *value)
{
    return value && !json_is_null(value) && !json_is_false(value) &&
           !(json_is_number(value) && json_number_value(value) == 0) &&
           !(json_is_string(value) && !json_string_length(value)) &&
           !(json_is_array(value) && !json_array_size(value));
}

/** A part of a template in [], which is shown or not. */
struct say_part {
    size_t begins;
    bool asks, agrees; /**< It has conditions, and they hold. */
    bool lacks;        /**< A member in it is not set. */
};

/** Append what is between braces. */
static void say_field(struct words *words, const json_t *object, const char *field, size_t length,
                      struct say_part *part)
{
    char text[128] = "", name[128], *rest = text;
    bool asks = *field == '?' || *field == '!';

    length -= asks;
    memcpy(text, field + asks, length < sizeof(text) ? length : sizeof(text) - 1);
    char *one = strsep(&rest, "|");
    char *as = strchr(one, ':');
    if (as)
        *as++ = '\0';
    memcpy(name, as ? as : one, strlen(as ? as : one) + 1);
    const json_t *value = object;
    for (const char *key = strsep(&one, "."); key; key = strsep(&one, "."))
        value = json_object_get(value, key);
    bool set = say_is_set(value);
    if (asks) {
        part->asks = true;
        part->agrees = part->agrees && set == (*field == '?');
        return;
    }
    part->lacks = part->lacks || !set;
    say_value(words, value, name);
    if (rest) {
        one = strsep(&rest, "|");
        words_add(words, " %s", json_integer_value(value) == 1 ? one : rest);
    }
}

void words_say(struct words *words, const json_t *object, const char *template)
{
    struct say_part part = {.begins = 0};

    while (*template) {
        size_t length = strcspn(template, "{[]");
        words_put(words, template, length);
        template += length;
        if (*template == '{') {
            length = strcspn(template, "}");
            say_field(words, object, template + 1, length - 1, &part);
            template += length;
        } else if (*template == '[') {
            part = (struct say_part){.begins = words->used, .agrees = true};
        } else if (*template && (part.asks ? !part.agrees : part.lacks)) {
            words->text[words->used = part.begins] = '\0';
        }
        template += *template != '\0';
    }
}

void say_users(const json_t *object, struct words *words)
{
    const json_t *app;
    size_t i;

    json_array_foreach(json_object_get(object, "apps"), i, app)
    {
        words_add(words, "%s", i ? " " : "");
        words_say(words, app, "{name}({pid})");
    }
}

void say_moving(const json_t *app, struct words *words)
{
    const json_t *move = json_object_get(app, "move");
    unsigned long long done = member_number(move, "done"), total = member_number(move, "total");
    unsigned long long built = member_number(move, "built"), builds = member_number(move, "builds");
    const char *verb = member_text(move, "verb");

    if (!move)
        return;
    words_add(words, "%s ",
              strcmp(verb, MSG_PREWARM) == 0  ? "being made ready for"
              : strcmp(verb, MSG_RESUME) == 0 ? "resuming on"
                                              : "moving to");
    words_say(words, move, "{to:place}");
    if (builds) {
        words_add(words, ", %llu%%: building %llu of ", 100 * built / builds,
                  built < builds ? built + 1 : builds);
        words_say(words, move, "{builds} programs[ (kernel {building})]");
    } else if (total) {
        words_add(words, ", %.0f%%: ", done < total ? 100.0 * (double)done / (double)total : 100.0);
        say_number(words, done < total ? done : total, "bytes");
        words_say(words, move, " of {total:bytes} copied");
    } else {
        words_say(words, move, "[: {phase}]");
    }
}

void say_link(const json_t *server, struct words *words)
{
    unsigned long long read = member_number(server, "read_bytes_s");
    unsigned long long write = member_number(server, "write_bytes_s");
    double least = (double)(read < write ? read : write);
    double trip = (double)member_number(server, "round_trip_ns") / 1e6;

    if (trip <= 0)
        return;
    words_add(words, trip < 10 ? "%.2f ms" : "%.0f ms", trip);
    if (least <= 0)
        words_add(words, ", rate unknown");
    else
        words_add(words,
                  least < 1e7   ? ", %.1f MB/s"
                  : least < 1e9 ? ", %.0f MB/s"
                                : ", %.1f GB/s",
                  least < 1e9 ? least / 1e6 : least / 1e9);
}

/* ---- columns of a terminal ---- */

/** The next character and its size in bytes. One that the locale cannot print becomes '?'. */
static wchar_t say_next(const char *text, size_t *ret_size)
{
    mbstate_t state = {0};
    wchar_t character;
    size_t size = mbrtowc(&character, text, MB_CUR_MAX, &state);
    bool known = size && size <= MB_CUR_MAX && wcwidth(character) >= 0;

    *ret_size = known ? size : 1;
    return known ? character : L'?';
}

int say_columns(const char *text)
{
    int columns = 0;

    for (size_t size; *text; text += size)
        columns += wcwidth(say_next(text, &size));
    return columns;
}

size_t say_fit(const char *text, int columns)
{
    const char *at = text;

    for (size_t size; *at; at += size) {
        columns -= wcwidth(say_next(at, &size));
        if (columns < 0)
            break;
    }
    return (size_t)(at - text);
}

void say_wrapped(FILE *to, int used, int indent, const char *text)
{
    bool begins = true;

    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        int length = (int)strcspn(text, " ");
        if (!begins && used + 1 + length > SAY_WIDTH) {
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
