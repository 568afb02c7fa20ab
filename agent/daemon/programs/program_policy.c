#include "agent/daemon/devices/device_list.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/peers.h"
#include "agent/daemon/programs/registry.h"
#include "agent/protocol/common_messages.h"
#include "policy/reseat_limits.h"
#include "state/base/files/access.h"
#include "state/driver/offer.h"

/* What the configuration lets one user have, and the users of one of its entries together. */

static struct config_user program_users_of(const struct agent *agent, uid_t uid,
                                           const struct peer *peer)
{
    struct config_user said;

    config_user(&agent->config, uid, peer ? peer->groups : NULL, peer ? peer->group_count : 0,
                &said);
    if (access_may_manage(geteuid(), uid))
        said.memory = said.programs = said.all_memory = said.all_programs = CONFIG_UNLIMITED;
    return said;
}

void program_set_user(const struct agent *agent, struct program *program, const struct peer *peer)
{
    program->user = program_users_of(agent, program->uid, peer);
}

bool programs_may_start(struct agent *agent, const struct peer *peer, char *ret_error, size_t size)
{
    struct config_user said = program_users_of(agent, peer->uid, peer);
    uint64_t own = 0, all = 0;

    programs_sweep(agent);
    for (const struct program *program = agent->programs; program; program = program->next) {
        own += program->uid == peer->uid;
        all += program->user.entry == said.entry;
    }
    if (own < said.programs && all < said.all_programs)
        return true;
    bool alone = own >= said.programs;
    snprintf(ret_error, size, "%s %llu programs under reseat, as many as the configuration allows",
             alone ? "this user has" : "the users of its group have",
             (unsigned long long)(alone ? own : all));
    return false;
}

uint64_t program_user_left(const struct agent *agent, const struct program *program)
{
    const struct config_user *said = &program->user;
    uint64_t own = 0, all = 0;

    if (said->memory == CONFIG_UNLIMITED && said->all_memory == CONFIG_UNLIMITED)
        return LEDGER_NO_LIMIT;
    for (const struct program *other = agent->programs; other; other = other->next) {
        for (size_t i = 0; other != program && i < other->vdev_count; i++) {
            uint64_t bytes = ledger_reserved(&other->vdevs[i].entry);
            own += other->uid == program->uid ? bytes : 0;
            all += other->user.entry == said->entry ? bytes : 0;
        }
    }
    uint64_t left = said->memory > own ? said->memory - own : 0;
    uint64_t all_left = said->all_memory > all ? said->all_memory - all : 0;
    return left < all_left ? left : all_left;
}

/* The policy of a program, as `reseat run` and `reseat limit` set it, stored for the next agent. */

#define PRIORITY_MAX 1000

void program_check_policy(struct program_policy *policy)
{
    if (policy->priority < -PRIORITY_MAX || policy->priority > PRIORITY_MAX)
        policy->priority = 0;
    policy->overrides &= OVERRIDE_ALL;
    policy->ways &= (1u << POLICY_WAYS) - 1;
}

void program_override(struct program_policy *policy, const struct registration *said)
{
    if (said->has_priority) {
        policy->priority = said->priority;
        policy->overrides |= OVERRIDE_PRIORITY;
    }
    if (said->preemptible) {
        policy->preemptible = true;
        policy->overrides |= OVERRIDE_PREEMPTIBLE;
    }
    if (said->has_ways) {
        policy->ways = said->ways;
        policy->overrides |= OVERRIDE_WAYS;
    }
    if (said->quota) {
        policy->quota = said->quota;
        policy->overrides |= OVERRIDE_QUOTA;
    }
    if (said->cap_mw) {
        policy->cap_mw = said->cap_mw;
        policy->overrides |= OVERRIDE_CAP;
    }
    if (said->protect.word != PROTECTION_UNSAID) {
        policy->protect = said->protect;
        policy->overrides |= OVERRIDE_PROTECT;
    }
    if (said->pinned_to[0]) {
        memcpy(policy->pinned_to, said->pinned_to, sizeof(policy->pinned_to));
        policy->overrides |= OVERRIDE_DEVICES;
    }
    program_check_policy(policy);
}

void program_reset_status(struct program *program)
{
    program->status = (struct program_status){0};
    program->ready_count = 0;
    program->whole_count = 0;
    for (size_t i = 0; i < program->vdev_room; i++) {
        struct program_device *vdev = &program->vdevs[i];
        vdev->suspended = vdev->moving = vdev->limited = vdev->tells_grants = false;
        vdev->lost = vdev->seeks = false;
        vdev->device_bytes = vdev->moves = vdev->last_downtime_ns = 0;
        vdev->wanted = vdev->least = vdev->granted = vdev->peak = vdev->spilled = 0;
        vdev->busy = 0;
        vdev->pinned[0] = '\0';
    }
}

uint64_t program_uses(const struct program *program)
{
    const struct program_status *status = &program->status;

    return (status->contexts * 1000003 + status->programs) * 1000003 + status->kernels;
}

/* ---- programs that registered ---- */

bool program_wish_fits(const struct agent *agent, const struct program *program, uint32_t device,
                       char *ret_reason, size_t size)
{
    const struct inventory_entry *entry = program->wish.aware ? devices_entry(agent, device) : NULL;
    struct plan_offer offer;
    struct plan_use use;

    if (!entry)
        return true;
    uint64_t memory = ledger_lasting(&agent->ledger.devices[device]);
    reseat_limits_plan(&program->wish.minimum, &use);
    offer_from_devinfo(&entry->info, &offer);
    offer.memory_available = memory < offer.memory_available ? memory : offer.memory_available;
    return plan_fits(&use, &offer, ret_reason, size);
}

void program_notify(const struct program *program, size_t vdev, const char *what, uint64_t in_ns,
                    uint64_t value, const char *text)
{
    struct frame frame;

    if (!program->peer || !program->wish.aware)
        return;
    if (vdev == PROGRAM_ALL_VDEVS && program->vdev_count == 1)
        vdev = 0;
    struct program_notice notice = {.vdev =
                                        vdev < program->vdev_count ? (uint32_t)vdev : UINT32_MAX,
                                    .in_ns = in_ns,
                                    .value = value,
                                    .valued = true};
    snprintf(notice.what, sizeof(notice.what), "%s", what);
    snprintf(notice.text, sizeof(notice.text), "%s", text);
    frame_init(&frame, MSG_NOTICE);
    put_notice(&frame, &notice);
    peer_send(program->peer, &frame);
}

void programs_notify_added(const struct agent *agent, uint64_t bytes, const char *text)
{
    for (const struct program *program = agent->programs; program; program = program->next)
        program_notify(program, PROGRAM_NO_VDEV, NOTICE_ADDED, 0, bytes, text);
}
