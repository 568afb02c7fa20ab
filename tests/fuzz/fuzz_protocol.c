#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/protocol/protocol.h"
#include "tests/fuzz/fuzz.h"

/*
 * The wire: a stream of bytes, cut anywhere, into frames, and what is asked of them. The first two
 * bytes say where the stream is cut.
 */

#define FRAMES_MAX 64

/* NaN is sent on as well. */
static uint64_t bits(double value)
{
    uint64_t same;
    memcpy(&same, &value, sizeof(same));
    return same;
}

static bool equal(const msgpack_object *a, const msgpack_object *b, unsigned depth)
{
    EXPECT(depth <= PROTOCOL_DEPTH_MAX + 1);
    if (a->type != b->type)
        return false;
    if (a->type == MSGPACK_OBJECT_ARRAY) {
        bool same = a->via.array.size == b->via.array.size;
        for (uint32_t i = 0; same && i < a->via.array.size; i++)
            same = equal(&a->via.array.ptr[i], &b->via.array.ptr[i], depth + 1);
        return same;
    }
    if (a->type == MSGPACK_OBJECT_MAP) {
        bool same = a->via.map.size == b->via.map.size;
        for (uint32_t i = 0; same && i < a->via.map.size; i++)
            same = equal(&a->via.map.ptr[i].key, &b->via.map.ptr[i].key, depth + 1) &&
                   equal(&a->via.map.ptr[i].val, &b->via.map.ptr[i].val, depth + 1);
        return same;
    }
    if (a->type == MSGPACK_OBJECT_FLOAT32 || a->type == MSGPACK_OBJECT_FLOAT64)
        return bits(a->via.f64) == bits(b->via.f64);
    return msgpack_object_equal(*a, *b);
}

static void copy_key(const msgpack_object *key, char *ret, size_t size, bool *ret_plain)
{
    const msgpack_object_str *text = &key->via.str;
    /* The unpacker gives NULL for an empty string at the beginning. */
    *ret_plain = text->size == 0 || (text->size < size && !memchr(text->ptr, '\0', text->size));
    if (!*ret_plain)
        return;
    if (text->size)
        memcpy(ret, text->ptr, text->size);
    ret[text->size] = '\0';
}

/* Every getter, whatever the field is. */
static void try_getters(const msgpack_object *map, const char *key)
{
    const msgpack_object *value = field_get(map, key), *items;
    char text[PROTOCOL_WORD_MAX];
    bool string = field_string(map, key, text, sizeof(text));
    EXPECT(value);
    EXPECT(strlen(text) < sizeof(text));
    for (const char *at = text; *at; at++)
        EXPECT((unsigned char)*at >= 0x20 && *at != 0x7f);
    EXPECT(!string || (value->type == MSGPACK_OBJECT_STR && field_is(map, key, text)));
    EXPECT(string || !text[0]);
    EXPECT(value->type == MSGPACK_OBJECT_POSITIVE_INTEGER || field_u64(map, key, 12345) == 12345);
    EXPECT(value->type == MSGPACK_OBJECT_BOOLEAN || field_bool(map, key, true));
    EXPECT((field_array(map, key, &items) > 0) ==
           (value->type == MSGPACK_OBJECT_ARRAY && value->via.array.size > 0));
    EXPECT(!field_get(value, "no such key") || value->type == MSGPACK_OBJECT_MAP);
}

/* What was received, sent on as it is, is received as the same. */
static void send_on(const struct message *message)
{
    struct frame frame;
    struct frame_reader reader;
    struct message again;
    bool plain = true;
    frame_init(&frame, "forward");
    const msgpack_object_map *map = &message->root.via.map;
    for (uint32_t i = 0; i < map->size; i++) {
        char key[256];
        bool usable;
        copy_key(&map->ptr[i].key, key, sizeof(key), &usable);
        if (!usable) {
            plain = false;
            continue;
        }
        try_getters(&message->root, key);
        frame_object(&frame, key, &map->ptr[i].val);
    }
    int err = frame_seal(&frame);
    EXPECT(err == 0 || err == -EMSGSIZE);
    frame_reader_init(&reader);
    if (err == 0) {
        EXPECT(frame_reader_feed(&reader, frame.buffer.data, frame.buffer.size) == 0);
        EXPECT(frame_reader_next(&reader, &again) == 1);
        EXPECT(again.root.via.map.size <= map->size + 1);
        for (uint32_t i = 0; plain && i < map->size; i++)
            EXPECT(equal(&again.root.via.map.ptr[i + 1].val, &map->ptr[i].val, 0));
        EXPECT(frame_reader_next(&reader, &again) == 0);
        message_finish(&again);
    }
    frame_reader_finish(&reader);
    frame_finish(&frame);
}

/* The results of frame_reader_next(), up to the end of the stream or of its use. */
struct outcome {
    int results[FRAMES_MAX];
    unsigned count;
    bool broken;
};

static void take_all(struct frame_reader *reader, struct outcome *outcome, bool use)
{
    while (outcome->count < FRAMES_MAX && !outcome->broken) {
        struct message message = {0};
        int got = frame_reader_next(reader, &message);
        EXPECT(got == 1 || got == 0 || got == -EMSGSIZE || got == -EPROTO || got == -ENOMEM);
        EXPECT(got == 1 || !message.bytes);
        if (got == 0)
            return;
        outcome->results[outcome->count++] = got;
        outcome->broken = got == -EMSGSIZE;
        if (got == 1 && use)
            send_on(&message);
        if (got == 1)
            message_finish(&message);
    }
}

static struct outcome read_in_steps(const uint8_t *data, size_t size, size_t step, bool use)
{
    struct outcome outcome = {.count = 0};
    struct frame_reader reader;
    frame_reader_init(&reader);
    for (size_t at = 0; at < size; at += step) {
        size_t count = size - at < step ? size - at : step;
        uint8_t *exact = fuzz_copy(data + at, count);
        EXPECT(frame_reader_feed(&reader, exact, count) == 0);
        free(exact);
        take_all(&reader, &outcome, use);
    }
    frame_reader_finish(&reader);
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    size_t step = (size_t)input_short(&input) % 997 + 1;
    /* Frames do not depend on how the stream was cut. */
    struct outcome whole = read_in_steps(input.at, input.left, input.left + 1, true);
    struct outcome cut = read_in_steps(input.at, input.left, step, false);
    EXPECT(whole.count == cut.count);
    EXPECT(memcmp(whole.results, cut.results, whole.count * sizeof(int)) == 0);
    /* And each frame alone, where the stream would not let it come. */
    struct message message;
    uint8_t *exact = fuzz_copy(input.at, input.left);
    if (message_decode(exact, input.left, &message) == 0) {
        send_on(&message);
        message_finish(&message);
    }
    free(exact);
    return 0;
}
