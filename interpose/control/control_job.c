#include "interpose/control/control_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/protocol/program_messages.h"
#include "state/base/clock.h"
#include "state/driver/device_key.h"
#include "state/image/checkpoint.h"
#include "state/image/park.h"
#include "state/image/snapshot.h"
#include "state/image/stored.h"

/* If a resume names no device, each virtual device goes back to its last one. */
static const char *control_job_read_targets(const msgpack_object *map,
                                            struct control_request *request)
{
    char text[DEVICE_KEY_TEXT_MAX];
    struct device_key target;
    bool named = field_string(map, "device", text, sizeof(text)) && text[0];
    if (named ? device_key_parse(text, &target) != 0 : request->verb != REQUEST_RESUME)
        return "the request names no valid device";
    for (uint32_t vdev = 0; vdev < PROTOCOL_VDEVS_MAX; vdev++) {
        struct vdev_status status = {0};
        status_vdev(vdev, &status);
        request->targets[vdev] = named ? target : status.device;
        bool meant = request->vdev == REQUEST_ALL_VDEVS ? vdev == 0 || vdev < status_vdev_count()
                                                        : request->vdev == vdev;
        if (!named && !status.device.icd[0] && meant)
            return "the program has been on no device yet; name one";
    }
    return NULL;
}

/* A number for each virtual device; @otherwise for those that the array lacks. */
static void control_job_read_numbers(const msgpack_object *map, const char *key, uint64_t otherwise,
                                     uint64_t *ret_numbers)
{
    const msgpack_object *items;
    size_t count = field_array(map, key, &items);
    for (size_t vdev = 0; vdev < PROTOCOL_VDEVS_MAX; vdev++)
        ret_numbers[vdev] = vdev < count && items[vdev].type == MSGPACK_OBJECT_POSITIVE_INTEGER
                                ? items[vdev].via.u64
                                : otherwise;
}

/* Read "grants", one for each virtual device, or "grant", which is for the one that is named. */
static void control_job_read_grants(const msgpack_object *map, struct control_request *request)
{
    const msgpack_object *items;
    request->limited = field_array(map, "grants", &items) != 0 || field_get(map, "grant");
    control_job_read_numbers(map, "grants", field_u64(map, "grant", 0), request->grants);
    control_job_read_numbers(map, "wanted", UINT64_MAX, request->wanted);
}

/* Leave out what is not of the request's verb. */
static void control_job_keep_its_own(struct control_request *request)
{
    bool checkpoints = request->verb == REQUEST_CHECKPOINT;
    request->move.prewarm = request->verb == REQUEST_PREWARM;
    request->parks = request->parks && checkpoints;
    request->drop = request->drop && request->move.prewarm;
    if (request->verb != REQUEST_SUSPEND && !checkpoints)
        request->folder[0] = '\0';
}

static const char *control_job_read_protection(struct control_request *request)
{
    /* Numbered by the control thread, so that the later one of two orders is in effect. */
    request->order = control_protect_order();
    return request->protection.word == PROTECTION_UNSAID
               ? "the request does not say how to protect the program"
               : NULL;
}

static const char *control_job_check_image(const struct control_request *request)
{
    if (request->folder[0] && request->folder[0] != '/')
        return "the folder for the image is not named from the root folder on";
    if (request->lease_ms != 0 &&
        (request->lease_ms < LEASE_LEAST_MS || request->lease_ms > LEASE_MOST_MS))
        return "the lease is too short or too long";
    bool named = request->folder[0] || request->ends || request->parks;
    return request->verb == REQUEST_CHECKPOINT && !named ? "the request names no folder" : NULL;
}

const char *control_request_read(const msgpack_object *map, struct control_request *ret_request)
{
    struct control_request *request = ret_request;
    /* Their number is not known while the program starts. Then move_run checks it. */
    uint32_t count = status_vdev_count();
    program_take_request(map, request);
    if (request->vdev != REQUEST_ALL_VDEVS &&
        request->vdev >= (count == 0 ? PROTOCOL_VDEVS_MAX : count))
        return "the program has no such virtual device";
    request->verb = request_verb(map);
    control_job_keep_its_own(request);
    if (request->move.deadline_ns)
        request->move.deadline_ns = clock_of_host(request->move.deadline_ns);
    control_job_read_grants(map, request);
    if (request->verb == REQUEST_PROTECT)
        return control_job_read_protection(request);
    const char *wrong = control_job_check_image(request);
    if (wrong)
        return wrong;
    const msgpack_object *device = field_get(map, "device");
    bool drops_all = request->drop && (!device || field_is(map, "device", ""));
    bool goes = request->verb != REQUEST_CHECKPOINT && request->verb != REQUEST_SUSPEND;
    return goes && !drops_all ? control_job_read_targets(map, request) : NULL;
}

static bool control_job_is_there(const struct control_request *request, uint32_t vdev)
{
    struct vdev_status status = {0};
    struct protect_status protection;
    status_vdev(vdev, &status);
    if (request->verb == REQUEST_SUSPEND || request->parks)
        return status.suspended;
    if (request->verb == REQUEST_RESUME)
        return !status.suspended;
    /* A virtual device has to move even to its own device after that was lost and works again. */
    protect_read(&protection);
    return !status.suspended && !status.lost && !recovery_is_under_way(protection.recovery) &&
           device_key_equal(&status.device, &request->targets[vdev]);
}

/* The virtual devices to be moved; none if all are where they are to be. If the program turns out
 * not to have the one that is named, move_run refuses it. */
static uint32_t control_job_choose(const struct control_request *request, uint32_t *ret_vdevs)
{
    uint32_t count = 0, all = status_vdev_count();
    if (request->vdev != REQUEST_ALL_VDEVS && request->vdev >= all)
        ret_vdevs[count++] = request->vdev;
    for (uint32_t vdev = 0; vdev < all; vdev++)
        if ((request->vdev == REQUEST_ALL_VDEVS || request->vdev == vdev) &&
            !control_job_is_there(request, vdev))
            ret_vdevs[count++] = vdev;
    return count;
}

static void control_job_add(struct control_report *report, const struct move_report *one,
                            uint32_t vdev, bool named)
{
    struct move_report *whole = &report->whole;
    bool first = report->count == 0;
    report->each[report->count].vdev = vdev;
    report->each[report->count++].report = *one;
    whole->result = one->result;
    whole->reached = one->reached;
    whole->lasting = one->lasting;
    whole->total_ns += one->total_ns;
    whole->arrived_ns += one->arrived_ns;
    whole->downtime_ns += one->downtime_ns;
    whole->bytes += one->bytes;
    whole->build_ns += one->build_ns;
    whole->built += one->built;
    if (one->drain_ns > whole->drain_ns)
        memcpy(whole->waited_for, one->waited_for, sizeof(whole->waited_for));
    whole->drain_ns += one->drain_ns;
    whole->aim_ns += one->aim_ns;
    whole->left += one->left;
    whole->rounds += one->rounds;
    whole->predicted_ns += one->predicted_ns;
    if (!one->reason[0])
        return;
    /* A text that is too long is truncated. */
    if (named)
        (void)!snprintf(whole->reason, sizeof(whole->reason), "virtual device %u%s: %.400s", vdev,
                        first ? "" : " (those before it are done)", one->reason);
    else
        (void)!snprintf(whole->reason, sizeof(whole->reason), "%s", one->reason);
}

/* The virtual device has allocated more than the agent knew when it decided on the grants, with
 * which it would have to spill. */
static bool control_job_outgrew(const struct control_request *request, uint32_t vdev)
{
    struct vdev_status status = {0};
    status_vdev(vdev, &status);
    uint64_t has =
        status.room.wanted > status.device_bytes ? status.room.wanted : status.device_bytes;
    return request->limited && has > request->wanted[vdev] && has > request->grants[vdev];
}

/* Residences that are ready belong to no virtual device: each of the program's contexts may have
 * one. */
static void control_job_drop(const struct control_request *request,
                             struct control_report *ret_report)
{
    const struct device_key *target = &request->targets[0];
    struct move_report *whole = &ret_report->whole;
    int error = move_cool(target->icd[0] ? target : NULL, request->move.deadline_ns);
    *ret_report = (struct control_report){.already = error == -ENOENT};
    if (error != -ETIMEDOUT)
        return;
    whole->result = MOVE_EXPIRED;
    (void)!snprintf(whole->reason, sizeof(whole->reason), "a move of the program went on");
}

static struct image_request control_job_image(const struct control_request *request)
{
    return (struct image_request){.folder = request->folder,
                                  .move = request->move,
                                  .keeps = request->keeps,
                                  .keep = request->keep,
                                  .lease_ms = (uint32_t)request->lease_ms,
                                  .every_ms = request->every_ms};
}

/* Write the suspended program's host memory to an image. */
static void control_job_store(const struct control_request *request,
                              struct control_report *ret_report)
{
    const struct image_request image = control_job_image(request);
    uint64_t begun = clock_now_ns();
    ret_report->stores = true;
    stored_put(&image, &ret_report->image);
    if (ret_report->image.result != MOVE_DONE)
        ret_report->image.image[0] = '\0';
    ret_report->whole.total_ns += clock_now_ns() - begun;
}

/* The image has all of the program, whatever virtual device the request names. */
static void control_job_checkpoint(const struct control_request *request,
                                   struct control_report *ret_report)
{
    const struct image_request image = control_job_image(request);
    const struct image_report *made = &ret_report->image;
    struct move_report *whole = &ret_report->whole;
    if (request->ends) {
        checkpoint_end();
        return;
    }
    ret_report->stores = true;
    checkpoint_make(&image, &ret_report->image);
    if (made->result != MOVE_DONE)
        ret_report->image.image[0] = '\0';
    whole->result = made->result;
    whole->total_ns = made->total_ns;
    whole->downtime_ns = made->downtime_ns;
    whole->bytes = made->copied;
    (void)!snprintf(whole->reason, sizeof(whole->reason), "%s", made->reason);
}

/* Make the first snapshot at once, to learn whether the program can be protected. */
static void control_job_protect(const struct control_request *request,
                                struct control_report *ret_report)
{
    const struct snapshot_request wanted = {
        .move = {.deadline_ns = request->move.deadline_ns,
                 .cancel = request->move.cancel,
                 .max_downtime_ns = request->move.max_downtime_ns}};
    struct move_report *whole = &ret_report->whole;
    struct protect_status status;
    struct snapshot_report made = {.error = 0};
    int error = control_protect_apply(&request->protection, request->order);
    ret_report->protects = true;
    if (error != 0) {
        whole->result = MOVE_ROLLED_BACK;
        (void)!snprintf(whole->reason, sizeof(whole->reason), "it cannot be protected: %s",
                        strerror(-error));
    }
    if (error != 0 || request->protection.word != PROTECTION_ON)
        return;
    (void)protect_snapshot(&wanted, &made);
    protect_forget(); /* another request may have ended the protection meanwhile */
    protect_read(&status);
    const char *why = made.error != 0 ? made.reason : status.broken ? status.broken : "";
    (void)!snprintf(ret_report->not_protected, sizeof(ret_report->not_protected), "%s", why);
    whole->total_ns = made.total_ns;
    whole->downtime_ns = made.downtime_ns;
    whole->bytes = status.snapshot_bytes;
}

/* The program is suspended already. */
static void control_job_park(const struct control_request *request,
                             struct control_report *ret_report)
{
    struct move_report *whole = &ret_report->whole;
    int error = park_begin(request->move.deadline_ns, whole->reason, sizeof(whole->reason));
    ret_report->already = false;
    ret_report->parked = error == 0;
    whole->result = error == 0            ? MOVE_DONE
                    : error == -EPERM     ? MOVE_REFUSED
                    : error == -ETIMEDOUT ? MOVE_EXPIRED
                    : error == -ESHUTDOWN ? MOVE_ENDED
                                          : MOVE_ROLLED_BACK;
}

static void control_job_dispatch(const struct control_request *request,
                                 struct control_report *ret_report)
{
    uint32_t vdevs[PROTOCOL_VDEVS_MAX];
    if (request->drop) {
        control_job_drop(request, ret_report);
        return;
    }
    *ret_report = (struct control_report){0};
    if (!move_await_start(request->move.deadline_ns, &ret_report->whole))
        return;
    if (request->verb == REQUEST_CHECKPOINT && !request->parks) {
        control_job_checkpoint(request, ret_report);
        return;
    }
    if (request->verb == REQUEST_PROTECT) {
        control_job_protect(request, ret_report);
        return;
    }
    struct move_report *whole = &ret_report->whole;
    if (request->parks && driver_may_leave(whole->reason, sizeof(whole->reason)) != 0) {
        whole->result = MOVE_REFUSED; /* checked before the program is suspended for nothing */
        return;
    }
    uint32_t count = control_job_choose(request, vdevs);
    *ret_report = (struct control_report){.already = count == 0};
    for (uint32_t i = 0; i < count; i++)
        if (control_job_outgrew(request, vdevs[i]))
            ret_report->whole.result = CONTROL_AGAIN;
    for (uint32_t i = 0; i < count && ret_report->whole.result == MOVE_DONE; i++) {
        struct move_request move = request->move;
        struct move_report report = {0};
        move.vdev = vdevs[i];
        move.grant = request->limited ? &request->grants[vdevs[i]] : NULL;
        move.target =
            request->verb == REQUEST_SUSPEND || request->parks ? NULL : &request->targets[vdevs[i]];
        move_run(&move, &report);
        control_job_add(ret_report, &report, vdevs[i], status_vdev_count() > 1);
    }
    if (ret_report->whole.result != MOVE_DONE)
        return;
    if (request->parks)
        control_job_park(request, ret_report);
    else if (request->folder[0])
        control_job_store(request, ret_report);
}

/* Requests are refused while the program is fenced, because its threads are held in their calls.
 * The agent may not know yet. */
static bool control_job_is_fenced(struct control_report *ret_report)
{
    struct move_report *whole = &ret_report->whole;
    struct lease_renewer_status lease;
    lease_renewer_read(&lease);
    if (!lease.fenced)
        return false;
    *ret_report = (struct control_report){.whole.result = MOVE_ROLLED_BACK};
    (void)!snprintf(whole->reason, sizeof(whole->reason), "it is fenced: %.480s", lease.problem);
    return true;
}

void control_job_run(const struct control_request *request, struct control_report *ret_report)
{
    if (!request->ends && control_job_is_fenced(ret_report))
        return;
    control_job_dispatch(request, ret_report);
    if (ret_report->whole.result != MOVE_DONE && ret_report->whole.result != MOVE_REFUSED)
        (void)control_job_is_fenced(ret_report);
}

uint32_t control_environment_devices(struct device_key *ret_keys)
{
    const char *text = getenv(CONTROL_ENV_DEVICE);
    char key[DEVICE_KEY_TEXT_MAX];
    uint32_t count = 0;

    while (text && *text && count < PROTOCOL_VDEVS_MAX) {
        size_t length = strcspn(text, " ");
        if (length >= sizeof(key))
            break;
        memcpy(key, text, length);
        key[length] = '\0';
        if (device_key_parse(key, &ret_keys[count]))
            break;
        count++;
        text += length + (text[length] == ' ');
    }
    return count;
}
