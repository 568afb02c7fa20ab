#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cli/launch.h"
#include "agent/cli/verb.h"
#include "state/base/bytes/hex.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "stream/client/connect.h"

#define FILE_LIMIT (1u << 20)
/* How long the service may take to answer. */
#define LIST_NS (10 * NS_PER_S)

/* ---- reseat stream run ---- */

struct stream_run {
    struct reseat_stream_options options;
    struct reseat_stream_constant constants[STREAM_CONSTANTS_MAX];
    struct reseat_stream *stream;
    int error; /* Of the reader. */
};

static int stream_take_constant(struct call *call, const struct option_row *option,
                                const char *text)
{
    struct stream_run *run = call->options;
    struct reseat_stream_constant *constant = &run->constants[run->options.count];
    char *equals = strchr(text, '='), *bytes;
    size_t size = equals ? strlen(equals + 1) / 2 : 0;

    if (!equals || equals == text || run->options.count == STREAM_CONSTANTS_MAX)
        return output_usage(&call->output, "--%s is NAME=HEX or NAME=@FILE, at most %d times",
                            option->name, STREAM_CONSTANTS_MAX);
    *equals = '\0'; /* argv may be modified. */
    if (equals[1] == '@') {
        int error = paths_read(equals + 2, FILE_LIMIT, &bytes, &size);
        if (error)
            return output_usage(&call->output, "--%s: %s: %s", option->name, equals + 2,
                                strerror(-error));
    } else {
        bytes = malloc(size + 1);
        if (!bytes || !hex_get((unsigned char *)bytes, equals + 1, size)) {
            free(bytes);
            return output_usage(&call->output,
                                "--%s: \"%s\" is not pairs of lower-case hexadecimal digits",
                                option->name, equals + 1);
        }
    }
    *constant = (struct reseat_stream_constant){text, bytes, size};
    run->options.count++;
    return 0;
}

static const struct option_row stream_run_options[] = {
    {"constant", "NAME=VALUE",
     "A constant of the kernel: VALUE is its bytes in hexadecimal digits, or @FILE.",
     .take = stream_take_constant},
    {"device", "DEVICE", "Where the stream starts. Default: any device.",
     OPTION_VALUE(struct stream_run, options.device)},
    {"address", "ADDRESS", "Where the service listens. Default: as reseat stream serve.",
     OPTION_VALUE(struct stream_run, options.address)},
    {NULL}};

static void *stream_print_answers(void *data)
{
    struct stream_run *run = data;
    size_t output = reseat_stream_output(run->stream), count, size;
    const void *answers;

    while (!run->error) {
        run->error = reseat_stream_unpack(run->stream, SIZE_MAX, &answers, &count);
        if (run->error || count == 0)
            break;
        size = count * output;
        if (fwrite(answers, 1, size, stdout) != size || fflush(stdout))
            run->error = -errno;
        (void)reseat_stream_unpacked(run->stream, count);
    }
    return NULL;
}

/* Send standard input. @ret_left: bytes after the last whole record. */
static int stream_send_input(struct stream_run *run, size_t *ret_left)
{
    size_t input = reseat_stream_input(run->stream), have = 0, room = FILE_LIMIT + input;
    CLEANUP(cleanup_free) char *bytes = malloc(room);
    int error = bytes ? 0 : -ENOMEM;

    while (!error) {
        ssize_t got = read(STDIN_FILENO, bytes + have, room - have);
        if (got <= 0) {
            error = got < 0 && errno != EINTR ? -errno : 0;
            if (got == 0 || error)
                break;
            continue;
        }
        have += (size_t)got;
        error = reseat_stream_write(run->stream, bytes, have / input);
        memmove(bytes, bytes + have / input * input, have % input);
        have %= input;
    }
    *ret_left = have;
    return error;
}

/* Read the files of a kernel that is given with its path. Returns its name. */
static const char *stream_read_kernel(struct call *call, const char *path, char **ret_description,
                                      char **ret_source, int *ret_status)
{
    const char *suffixes[] = {".stream", ".cl"};
    char **texts[] = {ret_description, ret_source}, file[PATH_MAX];
    size_t size;

    for (size_t i = 0; i < 2; i++) {
        int length = snprintf(file, sizeof(file), "%s%s", path, suffixes[i]);
        int error =
            length < PATH_MAX ? paths_read(file, FILE_LIMIT, texts[i], &size) : -ENAMETOOLONG;
        if (error) {
            *ret_status = output_fail(&call->output, ERR_FAILED, "%s: %s", file, strerror(-error));
            return NULL;
        }
    }
    return strrchr(path, '/') + 1;
}

static int stream_flow(struct call *call, struct stream_run *run)
{
    pthread_t reader;
    size_t left = 0;
    int error = -pthread_create(&reader, NULL, stream_print_answers, run);

    if (!error) {
        error = stream_send_input(run, &left);
        (void)reseat_stream_finish(run->stream);
        pthread_join(reader, NULL);
    }
    error = run->error ? run->error : error;
    if (error)
        return output_fail(&call->output, ERR_FAILED, "%s",
                           reseat_stream_reason(run->stream)[0] ? reseat_stream_reason(run->stream)
                                                                : strerror(-error));
    if (left)
        return output_fail(&call->output, ERR_FAILED,
                           "the input ended %zu bytes into a record of %zu bytes", left,
                           reseat_stream_input(run->stream));
    return 0;
}

/* Start the user's service where none listens. What it says is in its log. */
static void stream_start_service(struct call *call)
{
    char address[PATH_MAX], log[PATH_MAX];

    if (stream_address_find(address) || !connection_is_missing(address, clock_now_ns() + LIST_NS))
        return;
    int error = launch_streams(log);
    /* Of two that are started at the same time one ends at once. */
    if (error && connection_is_missing(address, clock_now_ns() + LIST_NS))
        output_note(&call->output, "the service of streams cannot be started (%s); see %s",
                    strerror(-error), log);
}

static int stream_run_run(struct call *call)
{
    struct stream_run *run = call->options;
    CLEANUP(cleanup_free) char *description = NULL, *source = NULL;
    const char *kernel = call->words[0];
    char reason[RESEAT_STREAM_REASON];
    int status = 0;

    run->options.size = sizeof(run->options);
    run->options.constants = run->constants;
    if (strchr(kernel, '/'))
        kernel = stream_read_kernel(call, kernel, &description, &source, &status);
    if (!kernel)
        return status;
    if (!run->options.address)
        stream_start_service(call);
    run->options.description = description;
    run->options.source = source;
    if (reseat_stream_open(kernel, &run->options, &run->stream, reason))
        return output_fail(&call->output, ERR_FAILED, "%s", reason);
    status = stream_flow(call, run);
    reseat_stream_close(run->stream);
    for (size_t i = 0; i < run->options.count; i++)
        free((void *)run->constants[i].bytes);
    return status;
}

const struct verb verb_stream_run = {
    .name = "stream run",
    .arguments = "KERNEL",
    .summary = "Send standard input to a stream, and write its answers to standard output.",
    .text = "KERNEL is one that reseat stream list names; or, with a slash, your own: the files "
            "KERNEL.stream and KERNEL.cl are sent with the stream. The user's service is started "
            "if none runs, and ends a minute after its last client; its log is stream.log in the "
            "runtime folder.",
    .options = stream_run_options,
    .size = sizeof(struct stream_run),
    .plain = true,
    .run = stream_run_run,
};

/* ---- reseat stream list ---- */

static void stream_say_constants(const json_t *kernel, struct words *words)
{
    const json_t *constant;
    size_t i;

    json_array_foreach(json_object_get(kernel, "constants"), i, constant)
        words_say(words, constant, i ? ", {name}[ ({bytes})]" : "{name}[ ({bytes})]");
}

static void stream_say_payloads(const json_t *stream, struct words *words)
{
    const json_t *payloads = json_object_get(stream, "payloads"),
                 *depths = json_object_get(stream, "depths");

    for (size_t i = 0; i < json_array_size(payloads); i++)
        words_add(words, "%s%lldx%lld", i ? " " : "",
                  (long long)json_integer_value(json_array_get(depths, i)),
                  (long long)json_integer_value(json_array_get(payloads, i)));
}

static void stream_say_rate(const json_t *stream, struct words *words)
{
    words_add(words, "%.0f/s", json_real_value(json_object_get(stream, "records_s")));
}

static int stream_list_print(const json_t *answer)
{
    static const struct table_column kernels[] = {
        {"KERNEL", "{name}"},
        {"INPUT", "{input}", TABLE_RIGHT},
        {"OUTPUT", "{output}", TABLE_RIGHT},
        {"CONSTANTS", .say = stream_say_constants},
        {"PROBLEM", "{problem}", TABLE_WRAP},
        {NULL},
    };
    static const struct table_column streams[] = {
        {"STREAM", "{program}"},
        {"ANSWERED", "{answered}", TABLE_RIGHT},
        {"RATE", .say = stream_say_rate, .flags = TABLE_RIGHT},
        {"PAYLOADS", .say = stream_say_payloads},
        {"CLIENT", "{client}", TABLE_WRAP},
        {NULL},
    };
    int status = table_print_list(json_object_get(answer, "kernels"), kernels);

    if (!json_array_size(json_object_get(answer, "streams")))
        return status;
    printf("\n");
    return table_print_list(json_object_get(answer, "streams"), streams);
}

static int stream_list_run(struct call *call)
{
    char address[PATH_MAX], reason[RESEAT_STREAM_REASON] = "";
    CLEANUP(cleanup_free) char *text = NULL;
    int error = call->count ? 0 : stream_address_find(address);

    error = error ? error
                  : connection_list(call->count ? call->words[0] : address,
                                    clock_now_ns() + LIST_NS, &text, reason);
    if (error)
        return output_fail(&call->output, ERR_GONE, "%s", reason);
    json_auto_t *answer = json_loads(text, 0, NULL);
    if (!answer)
        return output_fail(&call->output, ERR_PROTOCOL, "the service's answer is not understood");
    return call->output.json ? output_result(&call->output, answer, NULL, NULL)
                             : stream_list_print(answer);
}

const struct verb verb_stream_list = {
    .name = "stream list",
    .arguments = "[ADDRESS]",
    .summary = "List the kernels of a service of streams, and its open streams.",
    .text = "PAYLOADS: for writing, computing and reading, how many payloads of how many records "
            "are under way at most.",
    .members = "kernels streams",
    .run = stream_list_run,
};
