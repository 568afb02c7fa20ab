#include "state/image/image_chunk.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "state/base/threads/thread.h"

/* More than processors: some of them wait for the disk. */
#define THREADS_MORE 2
#define THREADS_MOST 16

int image_jobs_add(struct image_jobs *jobs, size_t object, uint64_t count)
{
    struct image_job *list = reallocarray(jobs->list, jobs->count + count, sizeof(*list));
    if (!list)
        return -ENOMEM;
    jobs->list = list;
    for (uint64_t chunk = 0; chunk < count; chunk++)
        list[jobs->count++] = (struct image_job){(uint32_t)object, chunk};
    return 0;
}

struct work {
    int (*job)(void *data, struct image_worker *, size_t index);
    void *data;
    size_t count;
    atomic_size_t next;
    atomic_int error;
};

static void image_work_fail(struct work *work, int error)
{
    int none = 0;
    atomic_compare_exchange_strong(&work->error, &none, error);
}

static void *image_work_run(void *data)
{
    struct work *work = data;
    struct image_worker worker = {image_packer_create(), malloc(IMAGE_CHUNK_FILE_MAX),
                                  malloc(IMAGE_CHUNK)};
    if (!worker.packer || !worker.room || !worker.unpacked)
        image_work_fail(work, -ENOMEM);
    size_t index;
    while (atomic_load(&work->error) == 0 &&
           (index = atomic_fetch_add(&work->next, 1)) < work->count) {
        int error = work->job(work->data, &worker, index);
        if (error)
            image_work_fail(work, error);
    }
    image_packer_destroy(worker.packer);
    free(worker.room);
    free(worker.unpacked);
    return NULL;
}

int image_work(size_t count, int (*job)(void *data, struct image_worker *, size_t index),
               void *data)
{
    struct work work = {.job = job, .data = data, .count = count};
    pthread_t threads[THREADS_MOST];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = (size_t)(processors > 0 ? processors : 1) + THREADS_MORE, started = 0;
    wanted = wanted < THREADS_MOST ? wanted : THREADS_MOST;
    /* The caller works too, so that the jobs are done even without other threads. */
    while (started + 1 < wanted && started + 1 < count &&
           thread_start("reseat-image", 0, image_work_run, &work, &threads[started]) == 0)
        started++;
    if (count)
        image_work_run(&work);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return atomic_load(&work.error);
}
