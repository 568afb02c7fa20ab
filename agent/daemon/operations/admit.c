#include <errno.h>
#include <string.h>

#include "agent/daemon/operations/governor.h"
#include "agent/daemon/operations/verbs.h"
#include "state/base/bytes/size.h"

/* What is granted ahead of need is a device's first grant, divided by so many at least. */
#define SHARES_LEAST 4

/** Bits: the virtual devices of @op that would move to @device; not those already there. */
static unsigned admit_arriving(const struct operation *op, uint32_t device)
{
    unsigned vdevs = 0;

    for (uint32_t i = 0; i < op->program->vdev_count; i++) {
        const struct program_device *vdev = &op->program->vdevs[i];
        bool resumes = op->verb == REQUEST_RESUME;
        bool comes = resumes ? vdev->suspended : vdev->suspended || vdev->entry.device != device;
        if (op->vdevs & (1u << i) && comes)
            vdevs |= 1u << i;
    }
    return vdevs;
}

static bool admit_may_spill(const struct program *program, unsigned vdevs)
{
    bool may = program->policy.ways & POLICY_SPILL;

    for (uint32_t i = 0; i < program->vdev_count; i++) {
        may = may &&
              (!(vdevs & (1u << i)) || (program->vdevs[i].limited && !program->vdevs[i].pinned[0]));
    }
    return may;
}

/** Bytes left on @device by an on-demand move: a return needs no more memory for them. */
static uint64_t admit_left_behind(const struct program *program, uint32_t device)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < program->vdev_count; i++) {
        for (uint32_t j = 0; j < program->vdevs[i].source_count; j++) {
            const struct ledger_entry *entry = &program->vdevs[i].sources[j].entry;
            bytes += entry->device == device ? entry->held : 0;
        }
    }
    return bytes;
}

/**
 * List the users of the device's memory except the operation's program: "enc 1.0 GiB, render 512.0
 * MiB, other users' programs 1.0 GiB".
 */
static void admit_list_users(const struct agent *agent, const struct operation *op, uint32_t device,
                             char *ret, size_t size)
{
    const struct program *but = op->program;
    uint64_t hidden = 0;
    char text[32];
    size_t used = 0;

    ret[0] = '\0';
    for (const struct program *program = agent->programs; program; program = program->next) {
        uint64_t bytes = admit_left_behind(program, device);
        for (size_t i = 0; i < program->vdev_count; i++) {
            const struct ledger_entry *entry = &program->vdevs[i].entry;
            bytes += entry->device == device ? ledger_reserved(entry) : 0;
            bytes += entry->target == device ? entry->pending : 0;
        }
        if (program == but || !bytes)
            continue;
        if (program->uid != but->uid && !(op->client && peer_sees(op->client, program->uid))) {
            hidden += bytes;
            continue;
        }
        bytes_text(bytes, text, sizeof(text));
        int length =
            snprintf(ret + used, size - used, "%s%s %s", used ? ", " : "", program->name, text);
        if (length < 0 || (size_t)length >= size - used) {
            ret[used] = '\0';
            return;
        }
        used += (size_t)length;
    }
    bytes_text(hidden, text, sizeof(text));
    if (hidden)
        snprintf(ret + used, size - used, "%sother users' programs %s", used ? ", " : "", text);
}

static const char *admit_advice(const struct ledger_device *device, bool users)
{
    if (device->limit < device->own) {
        return users ? "move or suspend one of them, or raise the limit (reseat limit)"
                     : "raise its limit (reseat limit), or choose another device (reseat devices)";
    }
    return users ? "move or suspend one of them, or choose another device (reseat devices)"
                 : "choose another device (reseat devices)";
}

static void admit_refuse(const struct agent *agent, const struct operation *op, uint32_t index,
                         uint64_t wanted, uint64_t least, char *ret_error, size_t size)
{
    const struct ledger_device *device = &agent->ledger.devices[index];
    char users[256], pending[32], room[32], all[32], few[64] = "";

    admit_list_users(agent, op, index, users, sizeof(users));
    bytes_text(wanted, pending, sizeof(pending));
    bytes_text(ledger_free(device), room, sizeof(room));
    bytes_text(ledger_capacity(device), all, sizeof(all));
    if (admit_may_spill(op->program, op->vdevs) && least < wanted) {
        char text[32];
        bytes_text(least, text, sizeof(text));
        snprintf(few, sizeof(few), ", and %s at once", text);
    }
    snprintf(ret_error, size, "program %s (pid %d) needs %s%s, but %s has %s free of %s%s%s; %s",
             op->program->name, (int)op->program->pid, pending, few, device->name, room, all,
             users[0] ? " beside " : "", users, admit_advice(device, users[0]));
}

/** Grant each virtual device what it wants, or its minimum and a share of the rest. */
static void admit_share_room(struct operation *op, unsigned vdevs, uint64_t room, uint64_t wanted,
                             uint64_t least)
{
    double part = 1;

    if (room < wanted)
        part = wanted > least ? (double)(room - least) / (double)(wanted - least) : 0;
    for (uint32_t i = 0; i < op->program->vdev_count; i++) {
        const struct program_device *vdev = &op->program->vdevs[i];
        uint64_t want = vdev_wanted(vdev), few = vdev->least < want ? vdev->least : want;
        op->grants[i] = 0;
        if (vdevs & (1u << i))
            op->grants[i] = part < 1 ? few + (uint64_t)((double)(want - few) * part) : want;
    }
}

/* True, with the reason, when its user may not have as much. */
static bool admit_is_beyond_user(const struct agent *agent, const struct program *program,
                                 uint64_t bytes, char *ret_error, size_t size)
{
    uint64_t left = program_user_left(agent, program);
    char needs[32], has[32];
    if (bytes <= left)
        return false;
    bytes_text(bytes, needs, sizeof(needs));
    bytes_text(left, has, sizeof(has));
    snprintf(ret_error, size,
             "program %s (pid %d) needs %s, and the configuration lets its user have %s more "
             "(\"users\")",
             program->name, (int)program->pid, needs, has);
    return true;
}

/* Where more is free, grant a little more: the next allocations need no request. */
static void admit_round_up(struct operation *op, const struct ledger_device *device, unsigned vdevs,
                           uint64_t free_bytes)
{
    unsigned shares = (unsigned)__builtin_popcount(vdevs);
    shares = shares > SHARES_LEAST ? shares : SHARES_LEAST;
    uint64_t more = ledger_initial(device) / shares;
    for (uint32_t i = 0; i < op->program->vdev_count && more <= free_bytes / shares; i++)
        if (vdevs & (1u << i))
            op->grants[i] += more;
}

int admit_request(struct agent *agent, struct operation *op, const struct inventory_entry *target,
                  char *ret_error, size_t size)
{
    struct ledger *ledger = &agent->ledger;
    struct program *program = op->program;
    uint64_t wanted = 0, least = 0;
    uint32_t index;

    if (ledger_device(ledger, target->name, &index))
        return 0;
    struct ledger_device *device = &ledger->devices[index];
    unsigned vdevs = admit_arriving(op, index);
    op->target = index;
    if (vdevs && drain_refuses(agent, device->name, ret_error, size))
        return -EBUSY;
    for (uint32_t i = 0; i < program->vdev_count; i++) {
        uint64_t want = vdevs & (1u << i) ? vdev_wanted(&program->vdevs[i]) : 0;
        wanted += want;
        least += program->vdevs[i].least < want ? program->vdevs[i].least : want;
    }
    uint64_t room = ledger_free(device) + (vdevs ? admit_left_behind(program, index) : 0);
    uint64_t quota = limits_quota(agent, program, vdevs);
    bool spills = admit_may_spill(program, vdevs);
    if (room > program_user_left(agent, program) &&
        admit_is_beyond_user(agent, program, spills ? least : wanted, ret_error, size))
        return -ENOSPC;
    room = spills && room > quota ? quota : room;
    if (wanted > room && (!spills || least > room)) {
        admit_refuse(agent, op, index, wanted, least, ret_error, size);
        return -ENOSPC;
    }
    admit_share_room(op, vdevs, room, wanted, least);
    if (wanted <= room)
        admit_round_up(op, device, vdevs, room - wanted);
    for (uint32_t i = 0; i < program->vdev_count && !op->asked.dry_run; i++)
        if (vdevs & (1u << i))
            ledger_keep(ledger, &program->vdevs[i].entry, index, op->grants[i]);
    return 0;
}

/* ---- how requests end ---- */

static void admit_arrive(struct agent *agent, const struct operation *op, uint32_t index)
{
    struct ledger *ledger = &agent->ledger;
    struct program_device *vdev = &op->program->vdevs[index];
    const struct inventory_entry *entry = devices_entry(agent, op->target);
    uint64_t said = vdev->granted;
    bool knows = vdev->arrived && vdev->limited && said < op->grants[index];
    uint32_t from = vdev->entry.device;

    if (vdev->entry.target != op->target) {
        /* Another request has replaced this one: the program's next report decides. */
        return;
    }
    if (from != LEDGER_NONE) {
        const struct policy_visit left = {.device = from,
                                          .busy = vdev->busy,
                                          .left_s = uv_now(&agent->loop) / 1000,
                                          .bar_s = op->payback_s,
                                          .by_policy = op->ours &&
                                                       op->asked.manner != REQUEST_NEEDED &&
                                                       !ledger->devices[from].drains};
        visits_moved(&vdev->visits, &left, op->target, config_policy(&agent->config)->return_s);
        vdev->move_ms = (uint32_t)(uv_now(&agent->loop) - op->begun_ms);
    }
    ledger_arrive(ledger, &vdev->entry);
    if (knows)
        ledger_set_granted(ledger, &vdev->entry, said);
    if (entry) {
        vdev->device = entry->key;
        vdev->has_device = true;
    }
    vdev->placed_ms = vdev->exchanged_ms = vdev->granted_ms = uv_now(&agent->loop);
    vdev->earned_ms = vdev->displaced ? vdev->placed_ms - vdev->queued_ms : 0;
    vdev->arrived = false;
    vdev->suspended = false;
    vdev->displaced = false;
    vdev->only = LEDGER_NONE;
    if (losses_again(agent, op->program, index))
        return;
    vdev->lost = vdev->seeks = false;
    /* A move back to the previous device names no target. */
    if (vdev->entry.device != LEDGER_NONE && ledger_sync_believe(op->program))
        losses_arrived(agent, vdev->entry.device);
}

/** Queue a virtual device that is suspended; the policy resumes what it suspended. */
static void admit_queue(struct agent *agent, const struct operation *op, uint32_t index)
{
    struct program_device *vdev = &op->program->vdevs[index];

    vdev->displaced = op->ours;
    vdev->only = LEDGER_NONE;
    pending_queue(agent, pending_of(op->program, 1u << index), vdev);
}

void admit_fail(struct agent *agent, const struct operation *op, const struct operation_end *end)
{
    const char *result = end->result;
    struct program *program = op->program;
    bool refused = strcmp(result, RESULT_REFUSED) == 0;
    enum program_exclusion_cause cause = end->lasting ? EXCLUSION_BUILD
                                         : refused    ? EXCLUSION_REFUSED
                                                      : EXCLUSION_FAILED;

    if (strcmp(result, RESULT_AGAIN) == 0 || strcmp(result, RESULT_ENDED) == 0 ||
        strcmp(result, RESULT_UNKNOWN) == 0)
        return; /* The result does not say whether the device can run it. */
    if (op->target != LEDGER_NONE && cause == EXCLUSION_FAILED && ledger_sync_believe(program))
        losses_failed(agent, op->target);
    /* Record the failure for requests of operators too: the policy need not repeat it. */
    if (op->target != LEDGER_NONE && (op->ours || end->lasting))
        exclusions_add(agent, program, op->target, cause, end->reason);
    else if (op->ours)
        exclusions_rest(agent, program);
    if (op->ours) {
        snprintf(program->managed.why, sizeof(program->managed.why), "its %s was %s: %.180s",
                 operation_name(op), refused ? "refused" : "rolled back", end->reason);
    }
}

void admit_settle(struct agent *agent, const struct operation *op, const struct operation_end *end)
{
    struct governor *governor = agent->governor;
    struct program *program = op->program;
    struct managed *managed = &program->managed;
    bool suspends = op->verb == REQUEST_SUSPEND;
    unsigned moved = end->moved;

    for (uint32_t i = 0; i < program->vdev_count; i++) {
        struct program_device *vdev = &program->vdevs[i];
        if (!(op->vdevs & (1u << i)))
            continue;
        if (moved & (1u << i) && suspends) {
            ledger_place(&agent->ledger, &vdev->entry, LEDGER_NONE);
            vdev->suspended = true;
            admit_queue(agent, op, i);
        } else if (moved & (1u << i)) {
            admit_arrive(agent, op, i);
        } else if (vdev->entry.target == op->target) {
            vdev->arrived = false;
            ledger_keep(&agent->ledger, &vdev->entry, LEDGER_NONE, 0);
            /* It may not learn in time that the operation ended. */
            if (suspends && program->unresponsive)
                admit_queue(agent, op, i);
        }
        if (!suspends && moved & (1u << i))
            vdev->chosen = op->chosen;
        /* The operator wants it to stay suspended, also where the policy had suspended it. */
        if (suspends && !op->ours)
            vdev->displaced = false;
    }
    if (moved == 0) {
        admit_fail(agent, op, end);
    } else {
        managed->rest_ms = 0;
        if (op->ours && !suspends && op->asked.manner != REQUEST_NEEDED) {
            uint64_t now = uv_now(&agent->loop);
            managed->moved_ms[managed->moved++ % PROGRAM_MOVES_MAX] = now;
            governor->moved_ms[governor->moved++ % GOVERN_MOVES_MAX] = now;
        }
        if (!suspends)
            pending_answer(agent, program, moved, WAY_AGAIN, "the program is on another device");
        programs_save(agent, program);
    }
    agent->changed = true;
    if (op->ours)
        followers_step(agent, op, end->result, end->reason);
}
