#include "agent/daemon/power/power.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/costs/costs.h"
#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/peers.h"
#include "agent/meters/meters.h"
#include "policy/power.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/driver/served.h"

/** Readings of a program before its peak is used; until then the maximum of its device is used. */
#define POWER_SAMPLES 4
/** Readings in a row below a peak after which it falls to the highest of them: some minutes. */
#define POWER_FOLLOW 600
#define MW_PER_W     1000u
/** How often a program that may launch is told so again. */
#define POWER_RENEW_MS 1000
/** Shortest interval over which power is averaged. */
#define POWER_LEAST_MS 200
/** Most bytes read from a meter's file, which has one or two numbers. */
#define POWER_FILE_MAX 4096u

/** The power of one device. */
struct metered {
    uint64_t idle_mw, most_mw;       /**< 0: not known. */
    uint64_t reading_mw, foreign_mw; /**< As of the latest reading. */
    bool read;                       /**< There was a reading. */
    bool modelled;                   /**< It has no meter: readings are computed (power_model()). */
    bool idle_known;            /**< Configured, or measured while no program was on the device. */
    uint64_t read_ms, exceeded; /**< Time of the latest reading; readings above the device's cap. */
    uint64_t uj, at_ns;         /**< The meter's latest total and its time; at_ns 0: no value. */
    struct meter *meter;        /**< NULL for a meter that is a file, or without a meter. */
    char meter_name[CONFIG_NAME_MAX];
};

struct power {
    struct metered *devices; /**< Indexed as the ledger's devices. */
    uint32_t count;
    bool tells;        /**< The latest power_run() found a program that a cap concerns. */
    uint64_t exceeded; /**< Readings of all devices together that exceeded the host's cap. */
};

/** The input of power_choose(), and the program that each row is of. */
struct rows {
    struct power_world world;
    struct power_device *devices;
    struct power_program *programs;
    struct power_choice *choices;
    struct program **owners;
};

int power_init(struct agent *agent)
{
    agent->power = calloc(1, sizeof(*agent->power));
    return agent->power ? 0 : -ENOMEM;
}

void power_finish(struct agent *agent)
{
    for (uint32_t i = 0; agent->power && i < agent->power->count; i++)
        meter_destroy(agent->power->devices[i].meter);
    if (agent->power)
        free(agent->power->devices);
    free(agent->power);
    agent->power = NULL;
}

/** Returns false when out of memory. */
static bool power_grow(struct agent *agent)
{
    struct power *power = agent->power;

    if (power->count >= agent->ledger.count)
        return true;
    struct metered *grown = realloc(power->devices, agent->ledger.count * sizeof(*grown));
    if (!grown)
        return false;
    memset(grown + power->count, 0, (agent->ledger.count - power->count) * sizeof(*grown));
    power->devices = grown;
    power->count = agent->ledger.count;
    return true;
}

static uint64_t power_host_cap(const struct agent *agent)
{
    return config_policy(&agent->config)->power_cap * MW_PER_W;
}

/** True when a cap concerns @program (NULL: any program) on at least one device. */
static bool power_any_cap(const struct agent *agent, const struct program *program)
{
    if (power_host_cap(agent) || (program && program->policy.cap_mw))
        return true;
    for (uint32_t i = 0; i < agent->ledger.count; i++)
        if (agent->ledger.devices[i].cap_mw)
            return true;
    return false;
}

static bool power_is_at_work(const struct agent *agent)
{
    bool caps = power_any_cap(agent, NULL) || agent->power->tells;

    for (const struct program *program = agent->programs; program && !caps; program = program->next)
        caps = program->policy.cap_mw;
    return caps;
}

/* ---- the world ---- */

static struct program_peak *power_peak_of(const struct program *program, uint32_t device)
{
    struct program_power *power = (struct program_power *)(uintptr_t)&program->power;

    for (unsigned i = 0; i < power->peak_count; i++)
        if (power->peaks[i].device == device)
            return &power->peaks[i];
    return NULL;
}

/** The learnt peak of @program on @device above idle, in mW; 0: not known. */
static uint64_t power_learnt(const struct program *program, uint32_t device)
{
    const struct program_peak *peak = power_peak_of(program, device);

    return peak && peak->samples >= POWER_SAMPLES ? peak->mw : 0;
}

/**
 * False when @program may not launch, and its launches have ended. A program that does not answer
 * is stopped: its grant has ended by itself, and its launches are taken to have ended too. If they
 * have not, the meter shows them as power of others.
 */
static bool power_may_run(const struct program *program)
{
    const struct program_power *power = &program->power;
    bool heard = program->peer && power->capped && power->heard == power->turn;

    return !program->peer || power->granted || (!program->unresponsive && (!heard || power->runs));
}

bool power_awaits(const struct program *program)
{
    return program->power.capped && !program->power.granted && !program->unresponsive &&
           power_may_run(program);
}

static struct power_program power_row(const struct program *program, uint32_t device)
{
    const struct program_power *power = &program->power;

    return (struct power_program){
        .device = device,
        .peak_mw = power_learnt(program, device),
        .cap_mw = program->policy.cap_mw,
        .granted = program->peer && power->capped && power->granted,
        .runs = power_may_run(program),
        .wants = program->peer && power->wants && !program->unresponsive,
        .since_ms = power->since_ms,
    };
}

static void power_add_row(struct rows *rows, struct program *program, uint32_t device)
{
    uint32_t at = rows->world.program_count;

    for (uint32_t i = at; i-- > 0 && rows->owners[i] == program;)
        if (rows->programs[i].device == device)
            return;
    rows->programs[at] = power_row(program, device);
    rows->owners[at] = program;
    rows->world.program_count++;
}

static void power_rows_finish(struct rows *rows)
{
    free(rows->devices);
    free(rows->programs);
    free(rows->choices);
    free(rows->owners);
}

/** Add a row for each device that a program is on or moves to. Returns 0 or -ENOMEM. */
static int power_rows_init(struct agent *agent, struct rows *rows)
{
    size_t most = 1;

    *rows = (struct rows){0};
    if (!power_grow(agent))
        return -ENOMEM;
    for (const struct program *program = agent->programs; program; program = program->next)
        most += 2 * program->vdev_count;
    rows->devices = calloc(agent->ledger.count + 1, sizeof(*rows->devices));
    rows->programs = calloc(most, sizeof(*rows->programs));
    rows->choices = calloc(most, sizeof(*rows->choices));
    rows->owners = calloc(most, sizeof(*rows->owners));
    if (!rows->devices || !rows->programs || !rows->choices || !rows->owners) {
        power_rows_finish(rows);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        const struct metered *metered = &agent->power->devices[i];
        const struct ledger_device *device = &agent->ledger.devices[i];
        rows->devices[i] = (struct power_device){.name = device->name,
                                                 .idle_mw = metered->idle_mw,
                                                 .most_mw = metered->most_mw,
                                                 .foreign_mw = metered->foreign_mw,
                                                 .cap_mw = device->cap_mw};
    }
    rows->world = (struct power_world){.devices = rows->devices,
                                       .device_count = agent->ledger.count,
                                       .programs = rows->programs,
                                       .cap_mw = power_host_cap(agent),
                                       .now_ms = uv_now(&agent->loop)};
    for (struct program *program = agent->programs; program; program = program->next) {
        for (size_t i = 0; program->connected && i < program->vdev_count; i++) {
            const struct ledger_entry *entry = &program->vdevs[i].entry;
            if (entry->device != LEDGER_NONE)
                power_add_row(rows, program, entry->device);
            if (entry->target != LEDGER_NONE)
                power_add_row(rows, program, entry->target);
        }
    }
    return 0;
}

/* ---- messages to programs ---- */

static void power_send(struct agent *agent, struct program *program)
{
    struct program_power *power = &program->power;
    struct frame frame;

    power->said_ms = uv_now(&agent->loop);
    frame_init(&frame, MSG_POWER);
    put_power(&frame, power);
    peer_send(program->peer, &frame);
}

static void power_tell(struct agent *agent, struct program *program, bool capped, bool granted)
{
    struct program_power *power = &program->power;

    if (granted != power->granted || capped != power->capped)
        power->since_ms = uv_now(&agent->loop);
    power->capped = capped;
    power->granted = granted;
    if (!program->peer)
        return;
    power->turn++;
    power_send(agent, program);
}

/** Renew the grants, which end by themselves. */
static void power_renew(struct agent *agent)
{
    for (struct program *program = agent->programs; program; program = program->next) {
        const struct program_power *power = &program->power;
        if (program->peer && power->capped && power->granted && !program->unresponsive &&
            uv_now(&agent->loop) - power->said_ms >= POWER_RENEW_MS)
            power_send(agent, program);
    }
}

/** The lowest of the caps that concern @program; UINT64_MAX: none. */
static uint64_t power_cap_of(const struct agent *agent, const struct program *program)
{
    uint64_t least = program->policy.cap_mw ? program->policy.cap_mw : UINT64_MAX;
    uint64_t host = power_host_cap(agent);

    least = host && host < least ? host : least;
    for (size_t i = 0; i < program->vdev_count; i++) {
        uint32_t on = program->vdevs[i].entry.device;
        uint64_t cap = on == LEDGER_NONE ? 0 : agent->ledger.devices[on].cap_mw;
        least = cap && cap < least ? cap : least;
    }
    return least;
}

/**
 * Send the program a notice if its lowest cap changed, or if it cannot launch under it and needs
 * another @least_mw (0: it can) than before, so that it can adapt.
 */
static void power_notify(const struct agent *agent, struct program *program, uint64_t least_mw)
{
    struct program_power *power = &program->power;
    uint64_t cap_mw = power_cap_of(agent, program);
    char text[PROTOCOL_TEXT_MAX];

    if (cap_mw == (power->noticed_mw ? power->noticed_mw : UINT64_MAX) &&
        least_mw == power->least_mw)
        return;
    power->noticed_mw = cap_mw;
    power->least_mw = least_mw;
    if (cap_mw == UINT64_MAX)
        snprintf(text, sizeof(text), "no power cap concerns it any more");
    else if (least_mw)
        snprintf(text, sizeof(text), "%s", power->why);
    else
        snprintf(text, sizeof(text), "a power cap of %.1f W concerns it",
                 (double)cap_mw / MW_PER_W);
    program_notify(program, PROGRAM_ALL_VDEVS, NOTICE_POWER, 0, cap_mw, text);
}

/** Tell @program its new state. It may launch only if all of its rows are granted. */
static void power_settle(struct agent *agent, struct rows *rows, struct program *program)
{
    struct program_power *power = &program->power;
    const char *why = "";
    uint64_t least_mw = 0;
    bool any = false, capped = false, granted = true;

    for (uint32_t i = 0; i < rows->world.program_count; i++) {
        if (rows->owners[i] != program)
            continue;
        any = true;
        capped = capped || power_is_capped(&rows->world, i);
        granted = granted && rows->choices[i].grant;
        least_mw = rows->choices[i].least_mw > least_mw ? rows->choices[i].least_mw : least_mw;
        if (!why[0] || rows->choices[i].least_mw)
            why = rows->choices[i].why;
    }
    if (!any) {
        capped = power_any_cap(agent, program);
        granted = false;
    }
    granted = granted && capped;
    if (program->unresponsive)
        why = "it does not answer (is it stopped?), so others get its power";
    snprintf(power->why, sizeof(power->why), "%s", granted ? "" : why);
    agent->power->tells = agent->power->tells || capped;
    if (capped != power->capped || granted != power->granted)
        power_tell(agent, program, capped, granted);
    power_notify(agent, program, least_mw);
}

void power_run(struct agent *agent)
{
    struct rows rows;

    if (!power_is_at_work(agent) || power_rows_init(agent, &rows))
        return;
    power_choose(&rows.world, rows.choices);
    agent->power->tells = false;
    for (struct program *program = agent->programs; program; program = program->next)
        if (program->peer)
            power_settle(agent, &rows, program);
    power_rows_finish(&rows);
}

void power_welcome(struct agent *agent, struct program *program, struct frame *welcome)
{
    struct program_power *power = &program->power;

    power->capped = power_any_cap(agent, program);
    power->granted = power->runs = power->wants = false;
    power->noticed_mw = power->least_mw = 0;
    frame_bool(welcome, "capped", power->capped);
}

void power_connected(struct agent *agent, struct program *program)
{
    if (program->power.capped)
        power_tell(agent, program, true, false);
}

void power_handle(struct peer *peer, struct message *message)
{
    struct program_power *power = &peer->program->power;

    bool wanted = power->wants;

    take_power_use(&message->root, power);
    if (power->wants && !wanted && !power->granted)
        power->since_ms = uv_now(&peer->agent->loop);
}

/* ---- meters ---- */

/** True when @program may launch on @device although none of its virtual devices is there. */
static bool power_helps(const struct agent *agent, const struct program *program, uint32_t device)
{
    for (size_t i = 0; i < program->spread.count; i++) {
        const struct inventory_entry *entry =
            program->spread_told & 1u << i
                ? device_by_key(&agent->devices.inventory, &program->spread.devices[i])
                : NULL;
        if (entry && entry == devices_entry(agent, device))
            return true;
    }
    return false;
}

/**
 * Count the programs that may have launched on @device since @since_ms. @ret_one is one of them;
 * @ret_whole is true if it was busy and free to launch during the whole interval.
 */
static unsigned power_ran_on(const struct agent *agent, uint32_t device, uint64_t since_ms,
                             struct program **ret_one, bool *ret_whole)
{
    unsigned count = 0;

    for (struct program *program = agent->programs; program; program = program->next) {
        const struct program_power *power = &program->power;
        bool busy = false, here = power_helps(agent, program, device);
        for (size_t i = 0; i < program->vdev_count; i++) {
            here = here || program->vdevs[i].entry.device == device;
            busy = busy || (program->vdevs[i].entry.device == device && program->vdevs[i].busy);
        }
        if (!here || (!power_may_run(program) && power->since_ms < since_ms))
            continue;
        count++;
        *ret_one = program;
        *ret_whole = busy && (!power->capped || (power->granted && power->since_ms <= since_ms));
    }
    return count;
}

/**
 * Learn the peak of @program on @device, which no other program used in the interval. It rises at
 * once, and falls when it was not reached for long: the device or the program's work has changed.
 */
static void power_learn(struct program *program, uint32_t device, uint64_t above_mw, bool whole)
{
    struct program_power *power = &program->power;
    struct program_peak *peak = power_peak_of(program, device);

    if (!peak && power->peak_count == PROGRAM_PEAKS_MAX)
        power->peak_count = 0; /* The table is full: discard all peaks and learn them again. */
    if (!peak) {
        peak = &power->peaks[power->peak_count++];
        *peak = (struct program_peak){.device = device};
    }
    peak->samples += whole && peak->samples < POWER_SAMPLES;
    peak->lower_mw = above_mw > peak->lower_mw ? above_mw : peak->lower_mw;
    peak->lower += whole;
    if (above_mw < peak->mw && peak->lower < POWER_FOLLOW)
        return;
    peak->mw = peak->lower_mw;
    peak->lower = 0;
    peak->lower_mw = 0;
}

/** Record that @device drew @mw on average since @since_ms. */
static void power_read(struct agent *agent, uint32_t device, uint64_t mw, uint64_t since_ms,
                       uint64_t interval_ns)
{
    struct metered *metered = &agent->power->devices[device];
    uint64_t above = mw > metered->idle_mw ? mw - metered->idle_mw : 0;
    struct program *one = NULL;
    bool whole = false;
    unsigned count = power_ran_on(agent, device, since_ms, &one, &whole);

    metered->reading_mw = mw;
    metered->read = true;
    /*
     * While programs were running, foreign_mw can only fall: how the power is split between them
     * and other users of the device is not known.
     */
    if (count == 0 || above < metered->foreign_mw)
        metered->foreign_mw = above;
    if (count == 1 && !metered->modelled)
        power_learn(one, device, above, whole);
    metered->idle_known = metered->idle_known || count == 0;
    costs_power(agent, device, count == 1 && metered->idle_known ? one : NULL, above, interval_ns);
    if (agent->ledger.devices[device].cap_mw && mw > agent->ledger.devices[device].cap_mw)
        metered->exceeded++;
}

/**
 * Read a meter that is a file: the running total in microjoules and, if the file has a second
 * number, the time in nanoseconds of that total. Returns false if the meter is no file or has no
 * total.
 */
static bool power_measure_file(const struct config_device *said, uint64_t *ret_uj,
                               uint64_t *ret_at_ns)
{
    static const char kind[] = "file:";
    CLEANUP(cleanup_free) char *text = NULL;
    size_t size;
    char *end, *rest;

    if (strncmp(said->meter, kind, strlen(kind)) != 0 ||
        paths_read(said->meter + strlen(kind), POWER_FILE_MAX, &text, &size))
        return false;
    errno = 0;
    *ret_uj = strtoull(text, &end, 10);
    if (strchr(text, '-'))
        return false; /* strtoull() would take it for a large total. */
    uint64_t at_ns = strtoull(end, &rest, 10);
    if (rest != end)
        *ret_at_ns = at_ns;
    return end != text && !errno;
}

/** The meter's name: as configured, or NVML for a local NVIDIA device. */
static void power_meter_name(const struct inventory_entry *entry, const struct config_device *said,
                             char ret_name[CONFIG_NAME_MAX])
{
    bool nvidia = strstr(entry->key.platform, "NVIDIA") && !served_is_address(entry->key.icd);

    snprintf(ret_name, CONFIG_NAME_MAX, "%s", said->meter);
    if (!said->meter[0] && nvidia && entry->key.pci[0])
        snprintf(ret_name, CONFIG_NAME_MAX, "nvml:%s", entry->key.pci);
}

/**
 * The total of a device without a meter, of which the configuration says what it draws at most: it
 * draws its idle power, and the rest of the most in proportion to the load of the programs there.
 */
static uint64_t power_model(const struct agent *agent, uint32_t device)
{
    const struct metered *metered = &agent->power->devices[device];
    uint64_t busy = 0, ns = metered->at_ns ? clock_boot_ns() - metered->at_ns : 0;

    for (const struct program *program = agent->programs; program; program = program->next)
        for (size_t i = 0; power_may_run(program) && i < program->vdev_count; i++)
            busy += program->vdevs[i].entry.device == device ? program->vdevs[i].busy : 0;
    busy = busy < 1000 ? busy : 1000;
    uint64_t above = metered->most_mw > metered->idle_mw ? metered->most_mw - metered->idle_mw : 0;
    return metered->uj + (metered->idle_mw + above * busy / 1000) * ns / 1000000;
}

static bool power_measure(const struct agent *agent, uint32_t device,
                          const struct inventory_entry *entry, const struct config_device *said,
                          uint64_t *ret_uj, uint64_t *ret_at_ns)
{
    struct metered *metered = &agent->power->devices[device];
    char name[CONFIG_NAME_MAX];

    power_meter_name(entry, said, name);
    metered->modelled = !name[0] && said->busy_w;
    if (metered->modelled) {
        *ret_uj = power_model(agent, device);
        return true;
    }
    if (power_measure_file(said, ret_uj, ret_at_ns))
        return true;
    if (strcmp(name, metered->meter_name) != 0) {
        meter_destroy(metered->meter);
        metered->meter = NULL;
        metered->at_ns = 0;
        strcpy(metered->meter_name, name);
        if (name[0] && meter_create(name, &metered->meter) && strncmp(name, "file:", 5) != 0)
            agent_log("%s: the meter \"%s\" cannot be read", entry->name, name);
    }
    return metered->meter && meter_read(metered->meter, ret_uj, ret_at_ns);
}

/** Read the meter of one device. Without a new value, the previous reading stays. */
static void power_meter(struct agent *agent, uint32_t device)
{
    const struct inventory_entry *entry = devices_entry(agent, device);
    struct metered *metered = &agent->power->devices[device];
    uint64_t uj, now = clock_boot_ns(), before = metered->at_ns;

    if (!entry)
        return;
    const struct config_device said = device_settings_said(agent, entry);
    metered->idle_known = metered->idle_known || said.idle_w;
    if (said.idle_w)
        metered->idle_mw = said.idle_w * MW_PER_W;
    metered->most_mw = said.busy_w * MW_PER_W;
    if (before && uv_now(&agent->loop) - metered->read_ms < POWER_LEAST_MS)
        return;
    uint64_t read_ns = now;
    if (!power_measure(agent, device, entry, &said, &uj, &now)) {
        metered->at_ns = 0;
        return;
    }
    before = metered->at_ns;
    if (before && now == before)
        return;
    /* A total without a time that did not change has not been written since: the interval goes on
     * until it is. */
    if (before && now == read_ns && uj == metered->uj && now - before < METER_OLD_MS * NS_PER_MS)
        return;
    uint64_t late_ms = read_ns > now ? (read_ns - now) / NS_PER_MS : 0;
    uint64_t drawn = uj - metered->uj, since_ms = metered->read_ms;
    bool wrapped = uj < metered->uj;
    metered->uj = uj;
    metered->at_ns = now;
    metered->read_ms = uv_now(&agent->loop) - (late_ms < uv_now(&agent->loop) ? late_ms : 0);
    if (!before || wrapped || now <= before)
        return;
    double drawn_mw = (double)drawn * NS_PER_MS / (double)(now - before);
    if (drawn_mw > METER_MOST_MW) /* No device draws that: the total leapt, and begins anew. */
        return;
    uint64_t mw = (uint64_t)drawn_mw;
    if (!said.idle_w && (!metered->read || mw < metered->idle_mw))
        metered->idle_mw = mw;
    power_read(agent, device, mw, since_ms, now - before);
}

/** Read all meters. Returns the sum of the latest readings of all devices, in mW. */
static uint64_t power_read_all(struct agent *agent)
{
    uint64_t all = 0;

    for (uint32_t i = 0; power_grow(agent) && i < agent->power->count; i++) {
        power_meter(agent, i);
        all += agent->power->devices[i].reading_mw;
    }
    return all;
}

void power_tick(struct agent *agent)
{
    struct power *power = agent->power;
    uint64_t all = power_read_all(agent);

    if (power_host_cap(agent) && all > power_host_cap(agent))
        power->exceeded++;
    power_run(agent);
    power_renew(agent);
}

/* ---- what fits under a cap ---- */

/** Power of @device while only @program (NULL: an unknown program) launches there; 0: not known. */
static uint64_t power_needs(const struct agent *agent, const struct program *program,
                            uint32_t device)
{
    const struct metered *metered = &agent->power->devices[device];
    uint64_t peak = program ? power_learnt(program, device) : 0;

    return peak ? metered->idle_mw + peak : metered->most_mw;
}

/** Power that @device may draw with only @program on it, under all caps; UINT64_MAX: no cap. */
static uint64_t power_room(const struct agent *agent, const struct program *program,
                           uint32_t device)
{
    uint64_t host = power_host_cap(agent), others = 0, room = UINT64_MAX;

    for (uint32_t i = 0; host && i < agent->power->count; i++)
        others += i == device ? 0 : agent->power->devices[i].idle_mw;
    if (host)
        room = host > others ? host - others : 0;
    if (agent->ledger.devices[device].cap_mw && agent->ledger.devices[device].cap_mw < room)
        room = agent->ledger.devices[device].cap_mw;
    return program->policy.cap_mw && program->policy.cap_mw < room ? program->policy.cap_mw : room;
}

static bool power_fits_at(const struct agent *agent, const struct program *program, uint32_t device)
{
    uint64_t room = power_room(agent, program, device), needs = power_needs(agent, program, device);

    return room == UINT64_MAX || (needs && needs <= room);
}

bool power_bars(const struct agent *agent, const struct program *program, uint32_t device)
{
    if (!power_any_cap(agent, program) || agent->power->count < agent->ledger.count ||
        power_fits_at(agent, program, device))
        return false;
    for (uint32_t i = 0; i < agent->ledger.count; i++)
        if (i != device && agent->ledger.devices[i].listed && power_fits_at(agent, program, i))
            return true;
    return false;
}

/** What a cap is to be of; @program and @device as of power_allows(). */
struct power_scope {
    bool host;
    const struct program *program;
    uint32_t device;
};

/** What a cap of @scope is compared with while only @program launches, on @device; 0: unknown. */
static uint64_t power_needs_in(const struct agent *agent, const struct power_scope *scope,
                               const struct program *program, uint32_t device)
{
    uint64_t needs = power_needs(agent, program, device);
    uint64_t most = agent->power->devices[device].most_mw;
    bool own = !scope->host && scope->device == LEDGER_NONE;

    if (!needs || own)
        return needs;
    needs += agent->power->devices[device].foreign_mw;
    needs = most && needs > most ? most : needs;
    for (uint32_t i = 0; scope->host && i < agent->power->count; i++)
        if (i != device)
            needs += agent->power->devices[i].idle_mw + agent->power->devices[i].foreign_mw;
    return needs;
}

/**
 * The lowest cap of @scope under which a program could launch: the scope's, or any one that is
 * known or not. 0: unknown.
 */
static uint64_t power_least(const struct agent *agent, const struct power_scope *scope,
                            uint32_t *ret_device)
{
    uint64_t least = 0;

    for (uint32_t i = 0; i < agent->power->count; i++) {
        const struct program *program = scope->program ? scope->program : agent->programs;
        if (scope->device != i &&
            (scope->device != LEDGER_NONE || !agent->ledger.devices[i].listed))
            continue;
        for (bool more = true; more; program = program ? program->next : NULL) {
            uint64_t needs = power_needs_in(agent, scope, program, i);
            if (needs && (!least || needs < least)) {
                least = needs;
                *ret_device = i;
            }
            more = program && !scope->program;
        }
    }
    return least;
}

/** As power_allows(). */
static bool power_allows_in(struct agent *agent, const struct power_scope *scope, uint64_t cap_mw,
                            char *ret_reason, size_t size)
{
    uint32_t device = scope->device;

    (void)power_read_all(agent);
    uint64_t least = power_least(agent, scope, &device);
    const char *name = device == LEDGER_NONE ? "any device" : agent->ledger.devices[device].name;
    if (!least)
        snprintf(ret_reason, size,
                 "it is not known what %s draws at most, so no cap can be kept; say so in the "
                 "configuration (busy-watts)",
                 name);
    else if (cap_mw < least)
        snprintf(ret_reason, size,
                 "nothing fits under a cap of %.1f W; the least that would do is %.1f W, on %s",
                 (double)cap_mw / MW_PER_W, (double)least / MW_PER_W, name);
    return least && cap_mw >= least;
}

bool power_allows(struct agent *agent, const struct program *program, uint32_t device,
                  uint64_t cap_mw, char *ret_reason, size_t size)
{
    struct power_scope scope = {.program = program, .device = program ? LEDGER_NONE : device};

    return power_allows_in(agent, &scope, cap_mw, ret_reason, size);
}

bool power_allows_host(struct agent *agent, uint64_t cap_mw, char *ret_reason, size_t size)
{
    struct power_scope scope = {.host = true, .device = LEDGER_NONE};

    if (!cap_mw || !agent->power)
        return true; /* The agent starts: it knows no devices yet, and the cap holds. */
    return power_allows_in(agent, &scope, cap_mw, ret_reason, size);
}

/* ---- answers to clients ---- */

uint64_t power_idle(const struct agent *agent, uint32_t device)
{
    return device < agent->power->count && agent->power->devices[device].idle_known
               ? agent->power->devices[device].idle_mw
               : 0;
}

uint64_t power_expected(const struct agent *agent, const struct program *program, uint32_t device)
{
    uint64_t idle = power_idle(agent, device), learnt = power_learnt(program, device);

    if (learnt || !idle)
        return learnt;
    uint64_t most = agent->power->devices[device].most_mw;
    return most > idle ? most - idle : 0;
}

bool power_is_modelled(const struct agent *agent, uint32_t device)
{
    return device < agent->power->count && agent->power->devices[device].modelled;
}

void power_put_device(const struct agent *agent, uint32_t device, struct frame *frame)
{
    const struct metered *metered =
        device < agent->power->count ? &agent->power->devices[device] : &(struct metered){0};

    frame_u64(frame, "power_cap_mw", agent->ledger.devices[device].cap_mw);
    frame_bool(frame, "power_read", metered->read);
    frame_bool(frame, "power_model", metered->modelled);
    frame_u64(frame, "power_mw", metered->reading_mw);
    frame_u64(frame, "power_idle_mw", metered->idle_mw);
    frame_u64(frame, "power_most_mw", metered->most_mw);
    frame_u64(frame, "power_exceeded", metered->exceeded);
}

void power_put_program(const struct program *program, struct frame *frame)
{
    const struct program_power *power = &program->power;

    frame_u64(frame, "power_cap_mw", program->policy.cap_mw);
    frame_bool(frame, "power_capped", power->capped);
    frame_bool(frame, "power_granted", power->granted);
    frame_bool(frame, "power_waits", power->wants && !power->granted);
    frame_u64(frame, "power_peak_mw",
              program->vdevs[0].entry.device == LEDGER_NONE
                  ? 0
                  : power_learnt(program, program->vdevs[0].entry.device));
}

void power_explain(const struct agent *agent, const struct program *program, char *ret_line,
                   size_t size)
{
    const struct program_power *power = &program->power;
    uint64_t cap = power_cap_of(agent, program);

    if (!size || !power->capped)
        return;
    if (power->why[0])
        snprintf(ret_line, size, "Power: %s.\n", power->why);
    else
        snprintf(ret_line, size,
                 "Power: it may launch; the least cap that concerns it is %.1f W.\n",
                 cap == UINT64_MAX ? 0.0 : (double)cap / MW_PER_W);
}
