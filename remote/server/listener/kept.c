#include "remote/server/listener/clients.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "remote/wire/wire.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

uint64_t kept_check(int fd)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS); /* Fails for everything that is not a memfd. */
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &file))
        return 0;
    uint64_t size = (uint64_t)file.st_size;
    return size >= WIRE_BINARY_MIN && size <= WIRE_BINARY_MAX ? size : 0;
}

static void kept_drop(struct kept *kept, struct kept_row *row)
{
    close(row->fd);
    kept->bytes -= row->size;
    *row = kept->rows[--kept->count];
}

static struct kept_row *kept_find_row(struct kept *kept, const char *owner,
                                      const unsigned char name[CONTENT_HASH_SIZE])
{
    for (size_t i = 0; i < kept->count; i++)
        if (!strcmp(kept->rows[i].owner, owner) &&
            !memcmp(kept->rows[i].name, name, CONTENT_HASH_SIZE))
            return &kept->rows[i];
    return NULL;
}

/* The least recently used binary of @owner, or of all with NULL; NULL: there is none. */
static struct kept_row *kept_find_oldest(struct kept *kept, const char *owner)
{
    struct kept_row *oldest = NULL;
    for (size_t i = 0; i < kept->count; i++) {
        struct kept_row *row = &kept->rows[i];
        if ((!owner || !strcmp(row->owner, owner)) && (!oldest || row->used < oldest->used))
            oldest = row;
    }
    return oldest;
}

static bool kept_owner_has_room(const struct kept *kept, const char *owner, uint64_t size)
{
    uint64_t bytes = size;
    size_t count = 1;
    for (size_t i = 0; i < kept->count; i++)
        if (!strcmp(kept->rows[i].owner, owner)) {
            bytes += kept->rows[i].size;
            count++;
        }
    return bytes <= KEPT_OWNER_BYTES && count <= KEPT_OWNER_COUNT;
}

static bool kept_has_room(const struct kept *kept, uint64_t size)
{
    return kept->count < KEPT_COUNT && kept->bytes + size <= KEPT_BYTES;
}

/* Ends, because one binary is never larger than a client's limit, nor that larger than the total.
 */
static void kept_make_room(struct kept *kept, const char *owner, uint64_t size)
{
    while (!kept_owner_has_room(kept, owner, size))
        kept_drop(kept, kept_find_oldest(kept, owner));
    while (!kept_has_room(kept, size)) {
        struct kept_row *own = kept_find_oldest(kept, owner);
        kept_drop(kept, own ? own : kept_find_oldest(kept, NULL));
    }
}

bool kept_add(struct kept *kept, const char *owner, const unsigned char name[CONTENT_HASH_SIZE],
              int fd)
{
    uint64_t size = kept_check(fd);
    struct kept_row *same = kept_find_row(kept, owner, name);
    if (size == 0) {
        close(fd);
        return false;
    }
    /* The newest wins: an older one may come from a session that hostile code controlled. */
    if (same)
        kept_drop(kept, same);
    kept_make_room(kept, owner, size);
    struct kept_row *row = &kept->rows[kept->count++];
    *row = (struct kept_row){.fd = fd, .size = size, .used = ++kept->uses};
    strcpy(row->owner, owner);
    memcpy(row->name, name, CONTENT_HASH_SIZE);
    kept->bytes += size;
    return true;
}

int kept_find(struct kept *kept, const char *owner, const unsigned char name[CONTENT_HASH_SIZE])
{
    struct kept_row *row = kept_find_row(kept, owner, name);
    if (!row)
        return -1;
    row->used = ++kept->uses;
    return row->fd;
}
