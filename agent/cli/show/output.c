#include "agent/cli/show/output.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "state/base/bytes/text.h"

json_t *output_object(const struct output *output, int status)
{
    return json_pack("{s:i, s:s, s:i}", "schema", OUTPUT_SCHEMA, "command", output->command,
                     "status", status);
}

json_t *output_text(const char *value)
{
    return json_text(value, strlen(value));
}

void output_add_members(json_t *object, const json_t *answer, const char *names)
{
    for (const char *at = names; at && *at; at += strspn(at, "[]? ")) {
        char name[PROTOCOL_WORD_MAX];
        size_t length = strcspn(at, "[? ");
        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        at += length;
        json_t *value = json_object_get(answer, name);
        if (value)
            json_object_set(object, name, value);
        else if (*at != '?')
            json_object_set_new(object, name, *at == '[' ? json_array() : json_null());
    }
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

int output_result(const struct output *output, const json_t *answer, const char *code,
                  const char *message)
{
    int status = code ? output_status_of(code) : STATUS_DONE;

    if (!output->json && code)
        output_note(output, "%s", message);
    if (!output->json)
        return code ? status : output_done();
    json_t *object = output_object(output, status);
    output_add_members(object, answer, output->members);
    if (code)
        output_add_error(object, code, message);
    return output_print(object, status);
}

int output_say(const struct output *output, const json_t *answer, const char *template)
{
    struct words words = {.used = 0};

    if (!output->json) {
        words_say(&words, answer, template);
        puts(words.text);
    }
    return output_result(output, answer, NULL, NULL);
}

int output_list(const struct output *output, const json_t *answer, const char *key,
                const struct table_column *columns, const char *code, const char *message)
{
    if (output->json)
        return output_result(output, answer, code, message);
    int status = table_print_list(json_object_get(answer, key), columns);
    return !status && code ? output_status_of(code) : status;
}

void output_note(const struct output *output, const char *format, ...)
{
    char text[PROTOCOL_TEXT_MAX];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    text_make_safe(text, sizeof(text), text, strlen(text));
    if (output->notes) {
        words_add(output->notes, "%s%s", output->notes->used ? "; " : "", text);
        return;
    }
    char command[64]; /* may be whatever the user typed in place of one */
    text_make_safe(command, sizeof(command), output->command, strlen(output->command));
    fprintf(stderr, "reseat %s: %s\n", command, text);
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

int output_fail_answer(const struct output *output)
{
    return output_fail_write(output, ERR_PROTOCOL,
                             "the agent's answer is not understood; it may be of another release. "
                             "Restart it: reseat agent stop, then reseat agent start");
}

int output_fail_message(const struct output *output, const struct message *message)
{
    char code[PROTOCOL_WORD_MAX], line[PROTOCOL_TEXT_MAX];

    if (!field_string(&message->root, "code", code, sizeof(code)) ||
        !field_text(&message->root, "message", line, sizeof(line)))
        return output_fail_answer(output);
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
