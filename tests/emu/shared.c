#include "tests/emu/emu.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const function_names[] = {
#include "emu_names.inc"
};

_Static_assert(ARRAY_SIZE(function_names) <= EMU_FUNCTIONS_MAX, "enlarge EMU_FUNCTIONS_MAX");

enum slot_state { SLOT_FREE, SLOT_CLAIMED, SLOT_USED };

static void unlock_and_close(const int *fd)
{
    if (*fd < 0)
        return;
    /* Closing is not enough: a mapping keeps the open file, and with it the lock, alive. */
    flock(*fd, LOCK_UN);
    close(*fd);
}

void emu_shared_init(struct emu_shared *shared)
{
    shared->version = EMU_SHARED_VERSION;
    shared->function_count = ARRAY_SIZE(function_names);
    for (size_t i = 0; i < ARRAY_SIZE(function_names); i++)
        strncpy(shared->function_names[i], function_names[i], EMU_FUNCTION_NAME_MAX - 1);
    atomic_store(&shared->magic, EMU_SHARED_MAGIC);
}

int emu_shared_open(const char *path, struct emu_shared **ret_shared)
{
    CLEANUP(unlock_and_close) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct stat st;
    if (fd < 0 || flock(fd, LOCK_EX) != 0 || fstat(fd, &st) != 0)
        return -errno;
    bool fresh = st.st_size == 0;
    if (!fresh && st.st_size != (off_t)sizeof(struct emu_shared))
        return -EINVAL;
    if (fresh && ftruncate(fd, sizeof(struct emu_shared)) != 0)
        return -errno;
    struct emu_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        return -errno;
    if (fresh)
        emu_shared_init(shared);
    if (atomic_load(&shared->magic) != EMU_SHARED_MAGIC || shared->version != EMU_SHARED_VERSION ||
        shared->function_count != ARRAY_SIZE(function_names)) {
        emu_shared_close(shared);
        return -EINVAL;
    }
    *ret_shared = shared;
    return 0;
}

void emu_shared_close(struct emu_shared *shared)
{
    if (shared != NULL)
        munmap(shared, sizeof(*shared));
}

struct emu_shared_device *emu_shared_device(struct emu_shared *shared, const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= EMU_NAME_MAX)
        return NULL;
    for (size_t i = 0; i < EMU_DEVICES_MAX; i++) {
        struct emu_shared_device *slot = &shared->devices[i];
        uint32_t state = SLOT_FREE;
        if (atomic_compare_exchange_strong(&slot->state, &state, SLOT_CLAIMED)) {
            memcpy(slot->name, name, length + 1);
            atomic_store(&slot->arm_target, EMU_EVERY_FUNCTION);
            atomic_store(&slot->state, SLOT_USED);
            return slot;
        }
        /* Another claim may be for the same name: wait until it can be compared. */
        while (state == SLOT_CLAIMED) {
            sched_yield();
            state = atomic_load(&slot->state);
        }
        if (strcmp(slot->name, name) == 0)
            return slot;
    }
    return NULL;
}

int emu_shared_function(const struct emu_shared *shared, const char *function)
{
    if (function == NULL)
        return EMU_EVERY_FUNCTION;
    for (uint32_t i = 0; i < shared->function_count; i++)
        if (strcmp(shared->function_names[i], function) == 0)
            return (int)i;
    return -ENOENT;
}

int emu_shared_arm(struct emu_shared *shared, const char *device, uint64_t n, const char *function,
                   int error)
{
    struct emu_shared_device *slot = emu_shared_device(shared, device);
    int target = emu_shared_function(shared, function);
    if (slot == NULL || target == -ENOENT)
        return -ENOENT;
    if (n == 0 || n > INT64_MAX)
        return -EINVAL;
    /* Disarmed while target and error change, so that no call sees half of an arm. */
    atomic_store(&slot->arm_left, 0);
    atomic_store(&slot->arm_target, target);
    atomic_store(&slot->arm_error, error);
    atomic_store(&slot->arm_left, (int64_t)n);
    return 0;
}

int emu_shared_disarm(struct emu_shared *shared, const char *device)
{
    struct emu_shared_device *slot = emu_shared_device(shared, device);
    if (slot == NULL)
        return -ENOENT;
    atomic_store(&slot->arm_left, 0);
    return 0;
}

int emu_shared_vanish(struct emu_shared *shared, const char *device)
{
    struct emu_shared_device *slot = emu_shared_device(shared, device);
    if (slot == NULL)
        return -ENOENT;
    if (atomic_exchange(&slot->vanished, 1) == 0)
        atomic_fetch_add(&slot->losses, 1);
    return 0;
}

int emu_shared_restore(struct emu_shared *shared, const char *device)
{
    struct emu_shared_device *slot = emu_shared_device(shared, device);
    if (slot == NULL)
        return -ENOENT;
    atomic_store(&slot->vanished, 0);
    return 0;
}

uint64_t emu_shared_calls(struct emu_shared *shared, const char *device, const char *function)
{
    struct emu_shared_device *slot = emu_shared_device(shared, device);
    int target = emu_shared_function(shared, function);
    if (slot == NULL || target == -ENOENT)
        return 0;
    return atomic_load(target == EMU_EVERY_FUNCTION ? &slot->calls : &slot->function_calls[target]);
}

uint64_t emu_shared_fired(struct emu_shared *shared, const char *device)
{
    struct emu_shared_device *slot = emu_shared_device(shared, device);
    return slot != NULL ? atomic_load(&slot->fired) : 0;
}

uint64_t emu_shared_too_many(struct emu_shared *shared, const char *device)
{
    struct emu_shared_device *slot = emu_shared_device(shared, device);
    return slot != NULL ? atomic_load(&slot->too_many) : 0;
}

int64_t emu_shared_live(struct emu_shared *shared, const char *device, enum emu_kind kind)
{
    struct emu_shared_device *slot = emu_shared_device(shared, device);
    if (slot == NULL || kind >= EMU_KINDS)
        return -1;
    return atomic_load(&slot->live[kind]);
}

int64_t emu_shared_live_all(struct emu_shared *shared, const char *device)
{
    struct emu_shared_device *slot = emu_shared_device(shared, device);
    int64_t all = slot != NULL ? 0 : -1;
    for (size_t kind = 0; slot != NULL && kind < EMU_KINDS; kind++)
        all += atomic_load(&slot->live[kind]);
    return all;
}

uint64_t emu_shared_bytes(struct emu_shared *shared, const char *device)
{
    struct emu_shared_device *slot = emu_shared_device(shared, device);
    return slot != NULL ? atomic_load(&slot->bytes) : 0;
}
