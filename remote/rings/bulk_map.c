#include "remote/rings/bulk.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "remote/rings/area.h"

struct mapped {
    uint32_t number;
    char *bytes; /* NULL while it is being mapped. */
    size_t size;
    uint64_t held;
    bool withdrawn;
};

struct bulk_map {
    pthread_mutex_t lock;
    struct bulk_limits limits;
    /* Guarded by lock: */
    unsigned count;
    uint64_t bytes;
    struct mapped areas[];
};

int bulk_map_create(const struct bulk_limits *limits, struct bulk_map **ret_map)
{
    if (limits->areas == 0 || limits->areas > BULK_AREAS_MOST)
        return -EINVAL;
    struct bulk_map *map = calloc(1, sizeof(*map) + limits->areas * sizeof(map->areas[0]));
    if (!map)
        return -ENOMEM;
    pthread_mutex_init(&map->lock, NULL);
    map->limits = *limits;
    *ret_map = map;
    return 0;
}

void bulk_map_destroy(struct bulk_map *map)
{
    if (!map)
        return;
    for (unsigned i = 0; i < map->count; i++)
        area_unmap(map->areas[i].bytes, map->areas[i].size);
    pthread_mutex_destroy(&map->lock);
    free(map);
}

/* Locked. The area of that number, or NULL. */
static struct mapped *bulk_map_find(struct bulk_map *map, uint32_t number)
{
    for (unsigned i = 0; i < map->count; i++)
        if (map->areas[i].number == number)
            return &map->areas[i];
    return NULL;
}

/* Locked. */
static void bulk_map_forget(struct bulk_map *map, struct mapped *mapped)
{
    map->bytes -= mapped->size;
    *mapped = map->areas[--map->count];
}

/* Locked. Count an area before it is mapped. */
static int bulk_map_announce(struct bulk_map *map, uint32_t number, size_t size)
{
    if (bulk_map_find(map, number))
        return -EPROTO;
    if (map->count >= map->limits.areas || size > map->limits.all_bytes - map->bytes)
        return -ENOSPC;
    map->areas[map->count++] = (struct mapped){.number = number, .size = size};
    map->bytes += size;
    return 0;
}

int bulk_map_add(struct bulk_map *map, uint32_t area, int fd, size_t size)
{
    char *bytes = NULL;
    if (size == 0 || size % AREA_ALIGNMENT != 0)
        return -EPROTO;
    pthread_mutex_lock(&map->lock);
    int err = bulk_map_announce(map, area, size);
    pthread_mutex_unlock(&map->lock);
    if (err != 0)
        return err;
    err = area_check(fd, size);
    if (err == 0)
        err = area_map(fd, size, &bytes);
    pthread_mutex_lock(&map->lock);
    struct mapped *mapped =
        bulk_map_find(map, area); /* Found: while it is being mapped, nobody removes it. */
    if (err == 0)
        mapped->bytes = bytes;
    else
        bulk_map_forget(map, mapped);
    pthread_mutex_unlock(&map->lock);
    return err;
}

/* Releases the lock. */
static void bulk_map_unmap_if_over(struct bulk_map *map, struct mapped *mapped)
{
    struct mapped over = *mapped;
    bool is_over = over.withdrawn && over.held == 0;
    if (is_over)
        bulk_map_forget(map, mapped);
    pthread_mutex_unlock(&map->lock);
    if (is_over)
        area_unmap(over.bytes, over.size);
}

int bulk_map_remove(struct bulk_map *map, uint32_t area)
{
    pthread_mutex_lock(&map->lock);
    struct mapped *mapped = bulk_map_find(map, area);
    if (!mapped || !mapped->bytes || mapped->withdrawn) {
        pthread_mutex_unlock(&map->lock);
        return -EPROTO;
    }
    mapped->withdrawn = true;
    bulk_map_unmap_if_over(map, mapped);
    return 0;
}

int bulk_map_hold(struct bulk_map *map, uint32_t area, uint64_t offset, uint64_t size,
                  char **ret_bytes)
{
    int err = -EPROTO;
    pthread_mutex_lock(&map->lock);
    struct mapped *mapped = bulk_map_find(map, area);
    if (mapped && mapped->bytes && !mapped->withdrawn && offset <= mapped->size &&
        size <= mapped->size - offset) {
        mapped->held++;
        *ret_bytes = mapped->bytes + offset;
        err = 0;
    }
    pthread_mutex_unlock(&map->lock);
    return err;
}

bool bulk_map_whole(struct bulk_map *map, uint32_t area, char **ret_bytes, size_t *ret_size)
{
    pthread_mutex_lock(&map->lock);
    const struct mapped *mapped = bulk_map_find(map, area);
    bool is_there = mapped && mapped->bytes && !mapped->withdrawn;
    if (is_there) {
        *ret_bytes = mapped->bytes;
        *ret_size = mapped->size;
    }
    pthread_mutex_unlock(&map->lock);
    return is_there;
}

void bulk_map_release(struct bulk_map *map, uint32_t area)
{
    pthread_mutex_lock(&map->lock);
    struct mapped *mapped = bulk_map_find(map, area);
    if (!mapped || mapped->held == 0) {
        pthread_mutex_unlock(&map->lock);
        return;
    }
    mapped->held--;
    bulk_map_unmap_if_over(map, mapped);
}
