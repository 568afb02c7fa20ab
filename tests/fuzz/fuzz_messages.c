#include <stdlib.h>
#include <string.h>

#include "messages.h"
#include "tests/fuzz/fuzz.h"

/*
 * What a device server takes of its clients, and the driver of a server, between the frames and
 * what is done: the generated unpacking of every message, and of what answers hold. The first byte
 * says of which, the rest is its body. What is taken lies within it, since it is packed as the same
 * bytes.
 */

#define RECORDS 200 /* From there on it says which of those. */

/* What the generated dispatch hands on. */
struct client {
    const struct unpack *body;
};
struct server {
    const struct unpack *body;
};

static void check_again(const struct unpack *body, const struct pack *pack, const void *tail,
                        uint64_t tail_size)
{
    size_t size = (size_t)(body->end - body->at);
    EXPECT(!pack->failed && pack->used <= size && pack->used + tail_size == size);
    EXPECT(memcmp(body->at, pack->bytes, pack->used) == 0);
    EXPECT(tail_size == 0 || tail == body->at + pack->used);
}

#include "fuzz_messages_each.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    unsigned type = input_byte(&input);
    size_t left = input.left;
    unsigned char *bytes = fuzz_copy(input.at, left);
    const struct unpack whole = {bytes, bytes + left, false};
    struct unpack body = whole;
    struct client client = {&whole};
    struct server server = {&whole};
    if (type >= RECORDS) {
        try_record(type - RECORDS, whole);
    } else {
        bool taken = client_dispatch(&client, type, &body);
        body = whole;
        EXPECT(!(server_dispatch(&server, type, &body) && taken));
    }
    free(bytes);
    return 0;
}
