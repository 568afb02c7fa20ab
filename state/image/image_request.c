#include "state/image/image_request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "state/base/clock.h"
#include "state/base/threads/work.h"

/* How often progress is reported. */
#define TELL_NS (200 * NS_PER_MS)

int image_making_fail(struct image_making *making, int error, const char *why)
{
    struct image_report *report = making->report;
    if (!report->reason[0])
        (void)!snprintf(report->reason, sizeof(report->reason), "%s", why);
    return error;
}

int image_making_check(void *data, uint64_t done, uint64_t total)
{
    struct image_making *making = data;
    const struct move_request *move = &making->request->move;
    uint64_t now = clock_now_ns(), told = atomic_load(&making->told_at);
    if (work_is_over())
        return -ESHUTDOWN;
    if (move->cancel && atomic_load(move->cancel))
        return -ECANCELED;
    if (move->deadline_ns && now >= move->deadline_ns)
        return -ETIMEDOUT;
    if (move->progress && now >= told + TELL_NS &&
        atomic_compare_exchange_strong(&making->told_at, &told, now)) {
        const struct move_progress progress = {
            .phase = MOVE_COPY, .bytes_done = done, .bytes_total = total};
        move->progress(move->data, &progress);
    }
    return 0;
}

int image_making_write(struct image_making *making, struct image_folder *folder,
                       struct image_plan plan, char ret_problem[IMAGE_PROBLEM_MAX])
{
    struct image_written written;
    plan.manifest = &making->manifest;
    plan.check = image_making_check;
    plan.data = making;
    int error = image_write(folder, &plan, &written, ret_problem);
    if (error)
        return error;
    strcpy(making->report->image, written.name);
    making->report->bytes = written.bytes;
    making->report->written = written.stored;
    return 0;
}
