#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remote/rings/area.h"
#include "remote/rings/bulk.h"
#include "remote/rings/rings.h"
#include "state/base/clock.h"
#include "tests/fuzz/fuzz.h"

/*
 * Two sides of a link, and a stranger who writes what it wants, when it wants, into all memory that
 * they share, and offers and names what it wants of bulk data. Each step is a byte that says what
 * is done and others that say how.
 */

static const struct rings_shape shape = {.count = 3, .capacity = 4096};
static const struct bulk_limits limits = {
    .areas = 3, .area_size = AREA_ALIGNMENT, .all_bytes = 4 * AREA_ALIGNMENT};

struct world {
    struct bell_peer peers[2];
    struct rings_writer *writer;
    struct rings_reader *reader;
    uint64_t *words; /* the area of the rings, as the stranger sees it */
    size_t count;
    uint64_t posted, taken;
    bool meddled;
    struct bulk_map *map;
    int area;
};

static void begin(struct world *w)
{
    int ends[2], fd;
    *w = (struct world){.count = rings_size(&shape) / 8};
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    for (int i = 0; i < 2; i++)
        EXPECT(owned_take(ends[i], &w->peers[i].socket) == 0);
    EXPECT(area_create("fuzz", w->count * 8, &fd) == 0);
    EXPECT(rings_writer_create(&shape, fd, &w->peers[0], &w->writer) == 0);
    EXPECT(rings_reader_create(&shape, fd, &w->peers[1], &w->reader) == 0);
    w->words = mmap(NULL, w->count * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT(w->words != MAP_FAILED);
    close(fd);
    EXPECT(bulk_map_create(&limits, &w->map) == 0);
    EXPECT(area_create("fuzz", AREA_ALIGNMENT, &w->area) == 0);
}

static void end(struct world *w)
{
    rings_writer_destroy(w->writer);
    rings_reader_destroy(w->reader);
    munmap(w->words, w->count * 8);
    bulk_map_destroy(w->map);
    close(w->area);
    for (int i = 0; i < 2; i++)
        owned_close(&w->peers[i].socket);
}

static void post(struct world *w, size_t size)
{
    static char bytes[4096];
    const struct iovec part = {bytes, size};
    uint64_t number;
    memset(bytes, (int)w->posted, size);
    int err = rings_post(w->writer, &part, 1, 0, &number);
    EXPECT(err == 0 || err == -ETIMEDOUT || err == -EMSGSIZE || (w->meddled && err == -EPROTO));
    EXPECT((err == -EMSGSIZE) == (size > rings_frame_most(&shape)));
    if (err == 0)
        EXPECT(number == w->posted++);
}

/* What nobody has meddled with comes as it was posted. */
static void take(struct world *w)
{
    char *bytes = malloc(rings_frame_most(&shape));
    uint64_t number;
    size_t size;
    EXPECT(bytes);
    int err = rings_take(w->reader, bytes, 0, &size, &number);
    EXPECT(err == 0 || err == -ETIMEDOUT || (w->meddled && err == -EPROTO));
    if (err == 0) {
        EXPECT(number == w->taken++ && size <= rings_frame_most(&shape));
        for (size_t i = 0; i < size && !w->meddled; i++)
            EXPECT(bytes[i] == (char)number);
    }
    EXPECT(w->meddled || err == 0 || w->taken == w->posted);
    free(bytes);
}

/* A word, by its page and its place there, made into another one. */
static void meddle(struct world *w, struct input *input)
{
    size_t word = (size_t)(input_byte(input) * 512 + input_short(input) % 512) % w->count;
    uint64_t how = input_byte(input), value = input_byte(input);
    switch (how % 6) {
    case 0:
        value -= 16;
        break;
    case 1:
        value <<= how / 6;
        break;
    case 2:
        value = w->words[word] + value;
        break;
    case 3:
        value = w->words[word] - value;
        break;
    case 4:
        value = w->words[word] ^ UINT64_C(1) << value % 64;
        break;
    default:
        value = w->words[value * 16 % w->count];
    }
    w->words[word] = value;
    w->meddled = true;
}

/* A number that is small, large, or close to the largest. */
static uint64_t any_number(struct input *input)
{
    uint64_t unit = input_byte(input), value = input_byte(input);
    return unit & 1 ? -value << unit / 2 % 32 : value << unit / 2 % 32;
}

static void bulk(struct world *w, struct input *input, unsigned what)
{
    uint32_t area = input_byte(input) % 8;
    char *bytes;
    if (what == 0) {
        size_t size = (size_t)input_byte(input) * (AREA_ALIGNMENT / 2);
        int err = bulk_map_add(w->map, area, w->area, size);
        EXPECT(err == -EPROTO || err == -ENOSPC || (err == 0 && size == AREA_ALIGNMENT));
    } else if (what == 1) {
        uint64_t offset = any_number(input), size = any_number(input);
        int err = bulk_map_hold(w->map, area, offset, size, &bytes);
        EXPECT(err == 0 || err == -EPROTO);
        if (err == 0 && size > 0) {
            EXPECT(size <= AREA_ALIGNMENT && offset <= AREA_ALIGNMENT - size);
            bytes[0] = bytes[size - 1] = 1;
        }
    } else if (what == 2) {
        bulk_map_release(w->map, area);
    } else {
        int err = bulk_map_remove(w->map, area);
        EXPECT(err == 0 || err == -EPROTO);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size < 512 ? size : 512};
    struct world w;
    begin(&w);
    while (input.left > 0) {
        unsigned what = input_byte(&input) % 7;
        if (what == 0)
            post(&w, (size_t)input_byte(&input) * 9);
        else if (what == 1)
            take(&w);
        else if (what == 2)
            meddle(&w, &input);
        else
            bulk(&w, &input, what - 3);
    }
    end(&w);
    return 0;
}
