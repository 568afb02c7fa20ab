#include "remote/server/session/pending.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "state/base/log.h"

#define SLOTS 64 /* The number of bits in `used`. */

/* The staging memory of one context. Only the session's thread creates and finds it. */
struct staging {
    struct staging *next;
    cl_context context; /* NULL: it was released. */
    char *bytes;        /* NULL: registration failed, and is not tried again. */
    uint64_t used;
    struct registration registration;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct staging *stagings; /* Guarded by lock, as `next`, `context` and `used` of each are. */

static void staging_unregister(const struct staging *staging)
{
    registration_end(&staging->registration);
    munmap(staging->bytes, SLOTS * STAGING_MOST);
}

static struct staging *staging_find(cl_context context)
{
    pthread_mutex_lock(&lock);
    struct staging *staging = stagings;
    while (staging && staging->context != context)
        staging = staging->next;
    pthread_mutex_unlock(&lock);
    return staging;
}

static struct staging *staging_create(const struct entry *queue)
{
    struct staging *staging = malloc(sizeof(*staging));
    if (!staging)
        return NULL;
    *staging = (struct staging){.context = queue->context};
    void *bytes = mmap(NULL, SLOTS * STAGING_MOST, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (bytes != MAP_FAILED) {
        staging->bytes = bytes;
        if (!registration_begin(&staging->registration, queue->cl, queue->context, bytes,
                                SLOTS * STAGING_MOST)) {
            staging_unregister(staging);
            staging->bytes = NULL;
        }
    }
    pthread_mutex_lock(&lock);
    staging->next = stagings;
    stagings = staging;
    pthread_mutex_unlock(&lock);
    return staging;
}

static char *staging_take_slot(struct staging *staging)
{
    pthread_mutex_lock(&lock);
    int slot = __builtin_ffsll((long long)~staging->used) - 1;
    if (slot >= 0)
        staging->used |= UINT64_C(1) << slot;
    pthread_mutex_unlock(&lock);
    return slot < 0 ? NULL : staging->bytes + (size_t)slot * STAGING_MOST;
}

void *staging_take(const struct entry *queue, uint64_t size, struct staging **ret_staging)
{
    if (!queue->own_memory || size > STAGING_MOST)
        return NULL;
    struct staging *staging = staging_find(queue->context);
    if (!staging)
        staging = staging_create(queue);
    char *bytes = staging && staging->bytes ? staging_take_slot(staging) : NULL;
    if (bytes)
        *ret_staging = staging;
    return bytes;
}

void staging_give(struct staging *staging, const void *bytes)
{
    size_t slot = (size_t)((const char *)bytes - staging->bytes) / STAGING_MOST;
    pthread_mutex_lock(&lock);
    staging->used &= ~(UINT64_C(1) << slot);
    pthread_mutex_unlock(&lock);
}

void staging_forget(cl_context context)
{
    pthread_mutex_lock(&lock);
    for (struct staging *staging = stagings; staging; staging = staging->next)
        if (staging->context == context)
            staging->context = NULL;
    pthread_mutex_unlock(&lock);
}

void staging_tidy(void)
{
    struct staging *over = NULL;
    pthread_mutex_lock(&lock);
    for (struct staging **at = &stagings; *at;) {
        struct staging *staging = *at;
        if (staging->context || staging->used) {
            at = &staging->next;
            continue;
        }
        *at = staging->next;
        staging->next = over;
        over = staging;
    }
    pthread_mutex_unlock(&lock);
    while (over) {
        struct staging *staging = over;
        over = staging->next;
        if (staging->bytes)
            staging_unregister(staging);
        free(staging);
    }
}

bool registration_begin(struct registration *registration, const cl_icd_dispatch *cl,
                        cl_context context, void *bytes, size_t size)
{
    cl_int error = CL_SUCCESS;
    cl_mem_flags flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR | CL_MEM_HOST_NO_ACCESS;
    *registration =
        (struct registration){cl, cl->clCreateBuffer(context, flags, size, bytes, &error)};
    if (!registration->buffer)
        log_info("host memory could not be registered with a device (OpenCL error %d)", error);
    return registration->buffer != NULL;
}

void registration_end(const struct registration *registration)
{
    if (registration->buffer)
        registration->cl->clReleaseMemObject(registration->buffer);
}
