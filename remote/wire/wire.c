#include "remote/wire/wire.h"

#include <stdlib.h>

void pack_init(struct pack *pack)
{
    pack->bytes = pack->small;
    pack->used = 0;
    pack->room = sizeof(pack->small);
    pack->failed = false;
}

void pack_finish(struct pack *pack)
{
    if (pack->bytes != pack->small)
        free(pack->bytes);
}

static bool wire_grow(struct pack *pack, size_t size)
{
    size_t room = pack->room;
    while (room - pack->used < size)
        if (__builtin_mul_overflow(room, 2, &room))
            return false;
    bool small = pack->bytes == pack->small;
    unsigned char *bytes = realloc(small ? NULL : pack->bytes, room);
    if (!bytes)
        return false;
    if (small)
        memcpy(bytes, pack->small, pack->used);
    pack->bytes = bytes;
    pack->room = room;
    return true;
}

void pack_bytes(struct pack *pack, const void *bytes, size_t size)
{
    if (size == 0 || pack->failed)
        return;
    if (pack->room - pack->used < size && !wire_grow(pack, size)) {
        pack->failed = true;
        return;
    }
    memcpy(pack->bytes + pack->used, bytes, size);
    pack->used += size;
}

void pack_list(struct pack *pack, const void *list, size_t count, size_t size)
{
    uint32_t number = (uint32_t)count;
    if (number != count)
        pack->failed = true;
    pack_bytes(pack, &number, sizeof(number));
    pack_bytes(pack, list, count * size);
}

const void *unpack_bytes(struct unpack *unpack, uint64_t size)
{
    const unsigned char *at = unpack->at;
    if (unpack->bad || size > (uint64_t)(unpack->end - at)) {
        unpack->bad = true;
        return NULL;
    }
    unpack->at += size;
    return at;
}

uint32_t unpack_u32(struct unpack *unpack)
{
    uint32_t value = 0;
    const void *bytes = unpack_bytes(unpack, sizeof(value));
    if (bytes)
        memcpy(&value, bytes, sizeof(value));
    return value;
}

uint64_t unpack_u64(struct unpack *unpack)
{
    uint64_t value = 0;
    const void *bytes = unpack_bytes(unpack, sizeof(value));
    if (bytes)
        memcpy(&value, bytes, sizeof(value));
    return value;
}

void unpack_size3(struct unpack *unpack, uint64_t ret[3])
{
    for (int i = 0; i < 3; i++)
        ret[i] = unpack_u64(unpack);
}

static bool wire_id_fits(uint64_t id, enum id_type type)
{
    return id_place(id) < WIRE_OBJECTS_MAX &&
           (type == ID_NONE ? id_type(id) != ID_NONE : id_type(id) == type);
}

uint64_t unpack_id(struct unpack *unpack, enum id_type type, bool optional)
{
    uint64_t id = unpack_u64(unpack);
    if (!(optional && id == 0) && !wire_id_fits(id, type))
        unpack->bad = true;
    return id;
}

const void *unpack_ids(struct unpack *unpack, enum id_type type, uint32_t *ret_count)
{
    uint32_t count = unpack_u32(unpack);
    const void *ids = unpack_bytes(unpack, (uint64_t)count * sizeof(uint64_t));
    for (uint32_t i = 0; ids && i < count; i++)
        if (!wire_id_fits(id_at(ids, i), type))
            unpack->bad = true;
    *ret_count = ids ? count : 0;
    return ids;
}

const void *unpack_list(struct unpack *unpack, uint32_t *ret_size)
{
    uint32_t size = unpack_u32(unpack);
    const void *bytes = unpack_bytes(unpack, size);
    *ret_size = bytes ? size : 0;
    return bytes;
}

const char *unpack_text(struct unpack *unpack)
{
    uint32_t size = 0;
    const char *text = unpack_list(unpack, &size);
    if (size == 0 || strnlen(text, size) != size - 1) {
        unpack->bad = true;
        return "";
    }
    return text;
}

const void *unpack_tail(struct unpack *unpack, uint64_t *ret_size)
{
    const void *tail = unpack->at;
    *ret_size = unpack->bad ? 0 : (uint64_t)(unpack->end - unpack->at);
    unpack->at = unpack->end;
    return tail;
}
