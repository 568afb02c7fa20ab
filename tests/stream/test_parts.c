#include "tests/support/cases.h"
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stream/area.h"
#include "stream/description.h"
#include "stream/frame.h"

/* ---- the area ---- */

Test(area, rings_lie_behind_the_header_and_not_over_each_other)
{
    const uint32_t sizes[] = {1, 16, 4097, STREAM_RECORD_MAX};

    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++) {
            struct stream_shape shape = stream_shape_of(sizes[i], sizes[j], 0);
            cr_assert(shape.capacity >= 2);
            cr_assert_eq(shape.input_at, 4096);
            cr_assert(shape.output_at >= shape.input_at + shape.capacity * sizes[i]);
            cr_assert(shape.size >= shape.output_at + shape.capacity * sizes[j]);
            cr_assert_eq(shape.size % 4096, 0);
            cr_assert(shape.size <= 2 * STREAM_AREA_RING + 4 * 4096);
        }
}

Test(area, a_total_is_believed_only_where_it_can_be)
{
    _Atomic uint64_t word = 7;
    uint64_t total = 5;

    cr_assert_eq(stream_area_look(&word, 10, &total), 0);
    cr_assert_eq(total, 7);
    word = 6;
    cr_assert_eq(stream_area_look(&word, 10, &total), -EPROTO, "it went back");
    word = 11;
    cr_assert_eq(stream_area_look(&word, 10, &total), -EPROTO, "it is beyond");
    cr_assert_eq(total, 7);
    total = UINT64_MAX - 1; /* The totals may wrap. */
    word = 3;
    cr_assert_eq(stream_area_look(&word, 4, &total), 0);
    cr_assert_eq(total, 3);
}

/* As a mapping: aligned, and zeroes. */
static char *area_of(const struct stream_shape *shape)
{
    char *bytes = aligned_alloc(4096, shape->size);
    cr_assert_not_null(bytes);
    return memset(bytes, 0, shape->size);
}

Test(area, positions_go_round)
{
    struct stream_shape shape = stream_shape_of(8, 4, 10);
    char *bytes = area_of(&shape);
    struct stream_area area;
    uint64_t together;

    stream_area_init(&area, bytes, &shape);
    cr_assert_eq(stream_area_input(&area, 13, &together), bytes + 4096 + 3 * 8);
    cr_assert_eq(together, 7);
    cr_assert_eq(stream_area_output(&area, 29, &together), bytes + shape.output_at + 9 * 4);
    cr_assert_eq(together, 1);
    free(bytes);
}

Test(area, a_sleeper_is_rung_once)
{
    _Atomic uint64_t total = 0;
    _Atomic uint32_t sleeps = 0;
    char bytes[8];
    int pair[2];

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    stream_area_advance(&total, 1, &sleeps, pair[0]);
    cr_assert_eq(recv(pair[1], bytes, sizeof(bytes), MSG_DONTWAIT), -1, "nobody slept");
    sleeps = 1;
    stream_area_advance(&total, 2, &sleeps, pair[0]);
    stream_area_advance(&total, 3, &sleeps, pair[0]);
    cr_assert_eq(recv(pair[1], bytes, sizeof(bytes), MSG_DONTWAIT), 1);
    cr_assert_eq(total, 3);
    cr_assert(stream_area_hear(pair[1]));
    close(pair[0]);
    cr_assert_not(stream_area_hear(pair[1]));
}

Test(area, the_first_reason_stays_and_is_safe_to_print)
{
    struct stream_shape shape = stream_shape_of(1, 1, 10);
    char *bytes = area_of(&shape), reason[64];
    struct stream_area area;

    stream_area_init(&area, bytes, &shape);
    cr_assert_eq(stream_area_failure(&area, reason, sizeof(reason)), 0);
    stream_area_fail(&area, -EFAULT, "first\033[2J", -1);
    stream_area_fail(&area, -EIO, "second", -1);
    cr_assert_eq(stream_area_failure(&area, reason, sizeof(reason)), -EFAULT);
    cr_assert_str_eq(reason, "first?[2J");
    area.header->reason_size = UINT32_MAX; /* By a client. */
    area.header->status = UINT32_MAX;
    cr_assert_eq(stream_area_failure(&area, reason, sizeof(reason)), -EIO);
    free(bytes);
}

/* ---- frames ---- */

/* A body as it is received: with one byte more. */
static struct stream_body received(const struct stream_body *written, size_t size)
{
    struct stream_body body = {.bytes = calloc(1, size + 1), .size = size};
    memcpy(body.bytes, written->bytes, size);
    return body;
}

static const struct stream_open asked = {
    .version = STREAM_VERSION,
    .flags = STREAM_OPEN_SHARED,
    .kernel = {"aes", 3},
    .description = {"text", 4},
    .source = {"", 0},
    .device = {"gpu0", 4},
    .count = 2,
    .constants = {{{"key", 3}, {"\0\1\2", 3}}, {{"", 0}, {"x", 1}}},
};

Test(frame, open_is_read_as_it_was_written_and_no_part_of_it)
{
    struct stream_body body = {0};
    struct stream_open open;

    stream_open_put(&body, &asked);
    for (size_t size = 0; size < body.size; size++) {
        struct stream_body part = received(&body, size);
        cr_assert_eq(stream_open_get(&part, &open), -EPROTO, "%zu bytes", size);
        stream_body_finish(&part);
    }
    struct stream_body whole = received(&body, body.size);
    cr_assert_eq(stream_open_get(&whole, &open), 0);
    cr_assert_str_eq(open.kernel.bytes, "aes");
    cr_assert_str_eq(open.description.bytes, "text");
    cr_assert_str_eq(open.source.bytes, "");
    cr_assert_str_eq(open.device.bytes, "gpu0");
    cr_assert_eq(open.flags, STREAM_OPEN_SHARED);
    cr_assert_eq(open.count, 2);
    cr_assert_str_eq(open.constants[0].name.bytes, "key");
    cr_assert_arr_eq(open.constants[0].value.bytes, "\0\1\2", 3);
    stream_body_finish(&whole);
    stream_open_unshare(&body);
    whole = received(&body, body.size);
    cr_assert_eq(stream_open_get(&whole, &open), 0);
    cr_assert_eq(open.flags, 0);
    stream_body_finish(&whole);
    stream_body_finish(&body);
}

Test(frame, a_text_with_a_nul_and_a_long_count_are_refused)
{
    struct stream_open wrong = asked, open;
    struct stream_body body = {0};

    wrong.kernel = (struct stream_text){"a\0b", 3};
    stream_open_put(&body, &wrong);
    struct stream_body got = received(&body, body.size);
    cr_assert_eq(stream_open_get(&got, &open), -EPROTO);
    stream_body_finish(&got);
    stream_body_finish(&body);
    stream_open_put(&body, &asked);
    body.bytes[8] = body.bytes[9] = body.bytes[10] = body.bytes[11] = (char)0xff;
    got = received(&body, body.size);
    cr_assert_eq(stream_open_get(&got, &open), -EPROTO);
    stream_body_finish(&got);
    stream_body_finish(&body);
}

Test(frame, a_header_is_capped)
{
    unsigned char header[STREAM_FRAME_HEADER] = {0, 0, 16, 0, STREAM_RECORDS};
    enum stream_frame type;
    size_t size;

    cr_assert_eq(stream_frame_header(header, &type, &size), 0);
    cr_assert_eq(size, STREAM_FRAME_MAX);
    header[0] = 1;
    cr_assert_eq(stream_frame_header(header, &type, &size), -EMSGSIZE);
    header[0] = 0;
    header[6] = 1;
    cr_assert_eq(stream_frame_header(header, &type, &size), -EPROTO);
    header[6] = 0;
    header[4] = 99;
    cr_assert_eq(stream_frame_header(header, &type, &size), -EPROTO);
}

/* ---- descriptions ---- */

Test(description, one_that_says_all_is_read)
{
    struct stream_description read;
    char problem[STREAM_PROBLEM_MAX] = "";

    cr_assert_eq(stream_description_parse("kernel = \"aes\"; input = 16; output = 32; # bytes\n"
                                          "items = 4; local = 2; options = \"-DA=1\";\n"
                                          "constants = ( { name = \"key\"; bytes = 16; },"
                                          " { name = \"table\"; bytes = 0; } );",
                                          &read, problem),
                 0, "%s", problem);
    cr_assert_str_eq(read.kernel, "aes");
    cr_assert(read.input == 16 && read.output == 32 && read.items == 4 && read.local == 2);
    cr_assert_str_eq(read.options, "-DA=1");
    cr_assert_eq(read.count, 2);
    cr_assert_str_eq(read.constants[1].name, "table");
    cr_assert_eq(read.constants[0].bytes, 16);
}

Test(description, what_is_wrong_is_said)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"input = 16; output = 16;", "kernel is missing"},
        {"kernel = \"a\"; input = 0; output = 16;", "input must be a number from 1"},
        {"kernel = \"a\"; input = 16; output = 9999999;", "output must be a number from 1"},
        {"kernel = \"a b\"; input = 16; output = 16;", "the name of a function"},
        {"kernel = 7; input = 16; output = 16;", "must be a text"},
        {"kernel = \"a\"; input = 16; output = 16; inputs = 3;", "no setting \"inputs\""},
        {"kernel = \"a\"; input = 16; output = 16; items = 3; local = 2;", "local must divide"},
        {"kernel = \"a\"; input = 16; output = 16; constants = 3;", "must be a list"},
        {"kernel = \"a\"; input = 16; output = 16; constants = ( { name = \"k\"; } );",
         "bytes is missing"},
        {"kernel = \"a\"\n input", "line 2"},
        {"@include \"/etc/passwd\"", "not allowed"},
        {"", "kernel is missing"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct stream_description read;
        char problem[STREAM_PROBLEM_MAX] = "";
        cr_assert_eq(stream_description_parse(wrong[i].text, &read, problem), -EINVAL, "%s",
                     wrong[i].text);
        cr_assert(strstr(problem, wrong[i].says), "%s: %s", wrong[i].text, problem);
    }
}
