#include "tests/support/cases.h"
#include <errno.h>

#include "agent/protocol/protocol.h"
#include "state/base/bytes/text.h"
#include "state/driver/device_key.h"

static void make(struct frame *frame)
{
    frame_init(frame, "test");
    frame_u64(frame, "number", 1ull << 40);
    frame_bool(frame, "yes", true);
    frame_string(frame, "text", "gr\xc3\xbc\xc3\x9f");
    frame_array(frame, "list");
    for (unsigned i = 0; i < 300; i++) {
        frame_map(frame, NULL);
        frame_u64(frame, "i", i);
        frame_end(frame);
    }
    frame_end(frame);
    cr_assert_eq(frame_seal(frame), 0);
}

static void check(const struct message *message)
{
    const msgpack_object *list;
    char text[32];

    cr_assert(field_is(&message->root, "type", "test"));
    cr_assert_eq(field_u64(&message->root, "number", 0), 1ull << 40);
    cr_assert(field_bool(&message->root, "yes", false));
    cr_assert(field_string(&message->root, "text", text, sizeof(text)));
    cr_assert_str_eq(text, "gr\xc3\xbc\xc3\x9f");
    cr_assert_eq(field_array(&message->root, "list", &list), 300);
    cr_assert_eq(field_u64(&list[299], "i", 0), 299);
}

Test(protocol, frames_come_whole_however_the_stream_is_cut)
{
    struct frame frame;
    struct frame_reader reader;
    struct message message;

    make(&frame);
    for (size_t cut = 1; cut < 64; cut++) {
        unsigned got = 0;
        frame_reader_init(&reader);
        for (size_t twice = 0; twice < 2; twice++) {
            for (size_t at = 0; at < frame.buffer.size; at += cut) {
                size_t count = frame.buffer.size - at < cut ? frame.buffer.size - at : cut;
                cr_assert_eq(frame_reader_feed(&reader, frame.buffer.data + at, count), 0);
                while (frame_reader_next(&reader, &message) == 1) {
                    check(&message);
                    message_finish(&message);
                    got++;
                }
            }
        }
        cr_assert_eq(got, 2);
        frame_reader_finish(&reader);
    }
    frame_finish(&frame);
}

Test(protocol, oversized_frames_are_refused_before_they_arrive)
{
    const uint8_t prefix[4] = {0x01, 0x00, 0x40, 0x00};
    struct frame_reader reader;
    struct message message;

    frame_reader_init(&reader);
    cr_assert_eq(frame_reader_feed(&reader, prefix, 4), 0);
    cr_assert_eq(frame_reader_next(&reader, &message), -EMSGSIZE);
    frame_reader_finish(&reader);
}

Test(protocol, what_headers_announce_is_not_believed)
{
    static const uint8_t bad[][12] = {
        {0xdf, 0xff, 0xff, 0xff, 0xff},            /* a map of 4 G pairs */
        {0x81, 0xa1, 'a', 0xdd, 0x10, 0, 0, 0},    /* an array of 256 M */
        {0x81, 0xa1, 'a', 0xdb, 0xff, 0xff, 0, 0}, /* a string of 4 G bytes */
        {0x81, 0xa1, 'a', 0xc1},                   /* never used */
        {0x81, 0xa1, 'a'},                         /* ends early */
        {0x81, 0x01, 0x01},                        /* a key that is a number */
        {0x80, 0x80},                              /* two values */
        {0x93, 1, 2, 3},                           /* not a map */
        {0xc0},
    };
    static const size_t sizes[] = {5, 8, 8, 4, 3, 3, 2, 4, 1};
    struct message message;
    uint8_t deep[64];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_assert_eq(message_decode(bad[i], sizes[i], &message), -EPROTO, "case %zu", i);
    cr_assert_eq(message_decode(bad[0], 0, &message), -EPROTO);
    memset(deep, 0x91, sizeof(deep));
    deep[0] = 0x81;
    deep[1] = 0xa0;
    deep[63] = 0xc0;
    cr_assert_eq(message_decode(deep, sizeof(deep), &message), -EPROTO);
}

Test(protocol, random_and_altered_bytes_never_break_the_reader)
{
    struct frame frame;
    uint8_t bytes[4096];

    srandom(20);
    make(&frame);
    for (unsigned round = 0; round < 20000; round++) {
        struct message message;
        size_t size = (size_t)random() % 64;
        if (round % 2) {
            size = frame.buffer.size - 4 < sizeof(bytes) ? frame.buffer.size - 4 : sizeof(bytes);
            memcpy(bytes, frame.buffer.data + 4, size);
            for (int i = 0; i < 3; i++)
                bytes[(size_t)random() % size] = (uint8_t)random();
        } else {
            for (size_t i = 0; i < size; i++)
                bytes[i] = (uint8_t)random();
        }
        int result = message_decode(bytes, size, &message);
        cr_assert(result == 0 || result == -EPROTO);
        if (!result) {
            const msgpack_object *list;
            char text[8];
            field_array(&message.root, "list", &list);
            field_string(&message.root, "text", text, sizeof(text));
            field_u64(field_get(&message.root, "list"), "number", 0);
            message_finish(&message);
        }
    }
    frame_finish(&frame);
}

Test(protocol, getters_fall_back_on_wrong_types_lengths_and_controls)
{
    struct frame frame;
    struct message message;
    const msgpack_object *list;
    char text[4] = "xyz";

    frame_init(&frame, "test");
    frame_string(&frame, "long", "abcd");
    frame_string(&frame, "control", "a\nb");
    frame_bool(&frame, "bool", true);
    cr_assert_eq(frame_seal(&frame), 0);
    cr_assert_eq(message_decode((uint8_t *)frame.buffer.data + 4, frame.buffer.size - 4, &message),
                 0);
    cr_assert(!field_string(&message.root, "long", text, sizeof(text)));
    cr_assert_str_eq(text, "");
    cr_assert(!field_string(&message.root, "control", text, sizeof(text)));
    cr_assert(!field_string(&message.root, "bool", text, sizeof(text)));
    cr_assert_eq(field_u64(&message.root, "long", 7), 7);
    cr_assert_eq(field_u64(NULL, "long", 7), 7);
    cr_assert_eq(field_array(&message.root, "bool", &list), 0);
    cr_assert(field_bool(&message.root, "missing", true));
    message_finish(&message);
    frame_finish(&frame);
}

/* What may be shown, and what becomes of it; by hand from the Unicode standard, table 3-7. */
static const struct {
    const char *text, *safe;
} texts[] = {
    {"", ""},
    {"plain ~", "plain ~"},
    {"\xc3\xa9 \xe2\x84\xa2 \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x84\xa2 \xf0\x9f\x98\x80"},
    {"\xc2\xa0\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf",
     "\xc2\xa0\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"},
    {"a\x1b[2Jb", "a?[2Jb"},
    {"a\nb\tc\x7f\x01", "a b c??"},
    {"\xc2\x9b"
     "2J",
     "??2J"},
    {"\xc2\x80\xc2\x9f", "????"},
    {"caf\xe9", "caf?"},
    {"\x9b", "?"},
    {"\xc0\x9b", "??"},
    {"\xc1\xbf", "??"},
    {"\xe0\x82\x9b", "???"},
    {"\xed\xa0\x80", "???"},
    {"\xf0\x80\x82\x9b", "????"},
    {"\xf4\x90\x80\x80", "????"},
    {"\xf9\x80\x80\x80", "????"},
    {"\xff\xfe", "??"},
    {"a\xe2\x80\xae"
     "b",
     "a???b"},
    {"\xe2\x80\xa8\xe2\x81\xa6\xd8\x9c", "????????"},
    {"\xe2\x80\xa7\xe2\x81\xa5\xe2\x80\xaf", "\xe2\x80\xa7\xe2\x81\xa5\xe2\x80\xaf"},
    {"\xe2\x84", "??"},
    {"\xe2\x84z", "??z"},
};

Test(text, what_a_terminal_would_act_on_or_cannot_read_is_replaced)
{
    char safe[64];

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        size_t length = strlen(texts[i].text);
        text_make_safe(safe, sizeof(safe), texts[i].text, length);
        cr_expect_str_eq(safe, texts[i].safe, "text %zu: %s", i, safe);
        cr_expect_eq(text_is_safe(texts[i].text, length), !strcmp(texts[i].text, texts[i].safe),
                     "text %zu", i);
        cr_expect(text_is_safe(safe, strlen(safe)), "text %zu", i);
        strcpy(safe, texts[i].text);
        text_make_safe(safe, sizeof(safe), safe, length);
        cr_expect_str_eq(safe, texts[i].safe, "text %zu in place", i);
    }
    text_make_safe(safe, 4, "ab\xc3\xa9", 4);
    cr_expect_str_eq(safe, "ab", "a character is cut in two");
    text_make_safe(safe, 5, "ab\xc3\xa9", 4);
    cr_expect_str_eq(safe, "ab\xc3\xa9");
    text_make_safe(safe, 1, "ab", 2);
    cr_expect_str_eq(safe, "");
    cr_expect(!text_is_safe("a\0b", 3));
}

Test(text, strings_of_frames_are_refused_words_made_safe_and_paths_left_as_they_are)
{
    struct message message;
    struct frame frame;
    char text[8];

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        frame_init(&frame, "test");
        frame_string(&frame, "text", texts[i].text);
        cr_assert_eq(frame_seal(&frame), 0);
        cr_assert_eq(
            message_decode((uint8_t *)frame.buffer.data + 4, frame.buffer.size - 4, &message), 0);
        bool safe = strcmp(texts[i].text, texts[i].safe) == 0,
             fits = strlen(texts[i].text) < sizeof(text);
        cr_expect_eq(field_string(&message.root, "text", text, sizeof(text)), safe && fits);
        cr_expect_str_eq(text, safe && fits ? texts[i].text : "");
        cr_expect(field_text(&message.root, "text", text, sizeof(text)));
        cr_expect_eq(strncmp(text, texts[i].safe, strlen(text)), 0);
        cr_expect(!fits || !strcmp(text, texts[i].safe));
        cr_expect_eq(field_path(&message.root, "text", text, sizeof(text)), fits);
        cr_expect_str_eq(text, fits ? texts[i].text : "");
        message_finish(&message);
        frame_finish(&frame);
    }
}

Test(protocol, frames_that_do_not_nest_are_not_sent)
{
    struct frame frame;

    frame_init(&frame, "test");
    frame_map(&frame, "open");
    cr_assert_eq(frame_seal(&frame), -EINVAL);
    frame_finish(&frame);
    frame_init(&frame, "test");
    frame_end(&frame);
    cr_assert_eq(frame_seal(&frame), -EINVAL);
    frame_finish(&frame);
    frame_init(&frame, "test");
    frame_string(&frame, NULL, "no key in a map");
    cr_assert_eq(frame_seal(&frame), -EINVAL);
    frame_finish(&frame);
}

Test(device_key, text_gives_the_key_back)
{
    struct device_key key = {.icd = "/lib/a;b=c %41.so",
                             .platform = "P \xe2\x84\xa2",
                             .device = "NVIDIA H200",
                             .ordinal = 3,
                             .uuid = "00112233445566778899aabbccddeeff",
                             .pci = "0000:3b:00.0"};
    struct device_key back;
    char text[DEVICE_KEY_TEXT_MAX];

    device_key_format(&key, text);
    cr_assert_eq(strcspn(text, " \n"), strlen(text));
    cr_assert_eq(device_key_parse(text, &back), 0);
    cr_assert_eq(memcmp(&key, &back, sizeof(key)), 0);
}

Test(device_key, longest_key_fits)
{
    struct device_key key = {0}, back;
    char text[DEVICE_KEY_TEXT_MAX];

    memset(key.icd, ' ', sizeof(key.icd) - 1);
    memset(key.platform, '%', sizeof(key.platform) - 1);
    memset(key.device, ';', sizeof(key.device) - 1);
    memset(key.uuid, 'f', sizeof(key.uuid) - 1);
    memset(key.pci, '0', sizeof(key.pci) - 1);
    key.ordinal = UINT32_MAX;
    device_key_format(&key, text);
    cr_assert_lt(strlen(text), sizeof(text));
    cr_assert_eq(device_key_parse(text, &back), 0);
    cr_assert_eq(memcmp(&key, &back, sizeof(key)), 0);
}

Test(device_key, damaged_text_is_refused)
{
    static const char *const bad[] = {"",
                                      "icd",
                                      "icd=a",
                                      "device=b",
                                      "icd=a;device=%4",
                                      "icd=a;device=%zz",
                                      "icd=a;device=b%00c",
                                      "icd=a;device=b%1b[2J",
                                      "icd=a;device=b%c2%9b2J",
                                      "icd=a;device=b%ff",
                                      "icd=a;device=b;ordinal=-1",
                                      "icd=a;device=b;ordinal=9999999999",
                                      "icd=a;device=b;ordinal=4294967296",
                                      "icd=a;device=b;pci=0123456789abcdef"};
    struct device_key key = {.ordinal = 77};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_assert_eq(device_key_parse(bad[i], &key), -EINVAL, "%s", bad[i]);
    cr_assert_eq(key.ordinal, 77);
}

Test(protocol, empty_strings_are_strings)
{
    /* {"": ""}, where the unpacker has no address to give. */
    static const uint8_t bytes[] = {0x81, 0xa0, 0xa0};
    struct message message;
    char text[8] = "x";

    cr_assert_eq(message_decode(bytes, sizeof(bytes), &message), 0);
    cr_assert(field_is(&message.root, "", ""));
    cr_assert(field_string(&message.root, "", text, sizeof(text)));
    cr_assert_str_eq(text, "");
    cr_assert_null(field_get(&message.root, "a"));
    message_finish(&message);
}

/* ---- the fields that are asked for ---- */

static void put_some(struct frame *frame, const char *const *names, size_t count)
{
    frame_array(frame, "fields");
    for (size_t i = 0; i < count; i++)
        frame_string(frame, NULL, names[i]);
    frame_end(frame);
}

static struct message decoded(struct frame *frame)
{
    struct message message;

    cr_assert_eq(frame_seal(frame), 0);
    cr_assert_eq(
        message_decode((const uint8_t *)frame->buffer.data + 4, frame->buffer.size - 4, &message),
        0);
    frame_finish(frame);
    return message;
}

/** As text what a frame has of a program for which those fields are asked. */
static const char *answered(const char *const *names, size_t count)
{
    static char text[512];
    struct frame_fields fields;
    struct frame frame;

    frame_init(&frame, "test");
    put_some(&frame, names, count);
    struct message asked = decoded(&frame);
    cr_assert(frame_fields_take(&asked.root, &fields));
    message_finish(&asked);

    frame_init(&frame, "test");
    frame_array(&frame, "apps");
    frame_map(&frame, NULL);
    frame_only(&frame, &fields);
    frame_string(&frame, "id", "a1");
    frame_u64(&frame, "idle", 7);
    frame_array(&frame, "vdevs");
    for (unsigned i = 0; i < 2; i++) {
        frame_map(&frame, NULL);
        frame_u64(&frame, "id", i);
        frame_map(&frame, "at");
        frame_bool(&frame, "id", true);
        frame_bool(&frame, "on", true);
        frame_end(&frame);
        frame_end(&frame);
    }
    frame_end(&frame);
    frame_array(&frame, "ready");
    frame_string(&frame, NULL, "gpu0");
    frame_end(&frame);
    frame_end(&frame);
    frame_end(&frame);
    frame_u64(&frame, "after", 1);
    struct message message = decoded(&frame);
    (void)msgpack_object_print_buffer(text, sizeof(text), message.root);
    message_finish(&message);
    for (char *from = text, *to = text; (*to = *from); from++)
        to += *to != '"' && *to != ' '; /* Short enough to be read. */
    return text;
}

#define ANSWERED(...)                                                                              \
    answered((const char *const[]){__VA_ARGS__}, ARRAY_SIZE(((const char *const[]){__VA_ARGS__})))
#define ONLY(inside) "{type=>test,apps=>[{" inside "}],after=>1}"

Test(protocol, the_fields_that_are_asked_for_are_written_and_no_others)
{
    const char *all = ONLY("id=>a1,idle=>7,vdevs=>[{id=>0,at=>{id=>true,on=>true}},"
                           "{id=>1,at=>{id=>true,on=>true}}],ready=>[gpu0]");

    cr_expect_str_eq(answered(NULL, 0), all);
    cr_expect_str_eq(ANSWERED("id", "idle", "vdevs", "ready", "vdevs.id"), all);
    cr_expect_str_eq(ANSWERED("id"), ONLY("id=>a1"));
    cr_expect_str_eq(ANSWERED("ready", "none"), ONLY("ready=>[gpu0]"));
    cr_expect_str_eq(ANSWERED("i", "ids", "at", "none"), ONLY(""));
    cr_expect_str_eq(ANSWERED("vdevs.id", "idle"), ONLY("idle=>7,vdevs=>[{id=>0},{id=>1}]"));
    cr_expect_str_eq(ANSWERED("vdevs.at.on", "vdevs.at.off"),
                     ONLY("vdevs=>[{at=>{on=>true}},{at=>{on=>true}}]"));
    cr_expect_str_eq(ANSWERED("vdevs.at.on", "vdevs.at"),
                     ONLY("vdevs=>[{at=>{id=>true,on=>true}},{at=>{id=>true,on=>true}}]"));
}

Test(protocol, fields_that_are_too_many_or_no_names_are_refused)
{
    static const char *const wrong[] = {"", "a\nb",
                                        "of_more_letters_than_any_field_has_that_is_asked_for"};
    const char *names[FRAME_FIELDS_MAX + 1];
    struct frame_fields fields;
    struct frame frame;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        names[i] = "id";
    for (size_t i = 0; i <= ARRAY_SIZE(wrong) + 1; i++) {
        names[1] = i < ARRAY_SIZE(wrong) ? wrong[i] : "id";
        frame_init(&frame, "test");
        put_some(&frame, names, FRAME_FIELDS_MAX + (i == ARRAY_SIZE(wrong)));
        struct message message = decoded(&frame);
        cr_expect_eq(frame_fields_take(&message.root, &fields), i == ARRAY_SIZE(wrong) + 1, "%zu",
                     i);
        message_finish(&message);
    }
}
