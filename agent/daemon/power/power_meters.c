#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/costs/costs.h"
#include "agent/daemon/devices/device_list.h"
#include "agent/daemon/power/power_priv.h"
#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/driver/served.h"

uint32_t utilisation_of_program(const struct agent *agent, const struct program *program,
                                uint32_t device)
{
    uint32_t ran = costs_share(agent, program, device), waited = 0;

    for (size_t i = 0; i < program->vdev_count; i++)
        if (program->vdevs[i].entry.device == device)
            waited += program->vdevs[i].busy;
    waited = waited < 1000 ? waited : 1000;
    return waited > ran ? waited : ran;
}

/** Take the sums over programs that no meter of the device shows. */
struct device_use utilisation_of_device(const struct agent *agent, uint32_t device)
{
    struct device_use use = {.busy_permil = 0};

    for (unsigned i = 0; i < METER_GAUGES; i++)
        use.gauges.values[i] = METER_UNKNOWN;
    if (device < agent->power->count && agent->power->devices[device].meter)
        meter_look(agent->power->devices[device].meter, &use.gauges);
    for (const struct program *program = agent->programs; program; program = program->next) {
        use.busy_permil += program->connected ? utilisation_of_program(agent, program, device) : 0;
        for (size_t i = 0; i < program->vdev_count; i++) {
            const struct program_device *vdev = &program->vdevs[i];
            if (vdev->entry.device != device)
                continue;
            use.wanted_bytes += vdev->wanted;
            use.from_bytes_s += vdev->from_bytes_s;
            use.to_bytes_s += vdev->to_bytes_s;
        }
    }
    use.busy_permil = use.busy_permil < 1000 ? use.busy_permil : 1000;
    use.busy_metered = utilisation_shows(&use, METER_BUSY);
    if (use.busy_metered)
        use.busy_permil = use.gauges.values[METER_BUSY];
    use.transfers_metered =
        utilisation_shows(&use, METER_FROM) && utilisation_shows(&use, METER_TO);
    if (use.transfers_metered) {
        use.from_bytes_s = use.gauges.values[METER_FROM];
        use.to_bytes_s = use.gauges.values[METER_TO];
    }
    return use;
}

void utilisation_put_device(const struct agent *agent, uint32_t device, struct frame *frame)
{
    const struct device_use use = utilisation_of_device(agent, device);

    put_device_use(frame, &use);
}

/* Reads the meters, and learns from them what devices draw while idle and what programs draw. */

/** Readings in a row below a peak after which it falls to the highest of them: some minutes. */
#define POWER_FOLLOW 600
/** Shortest interval over which power is averaged. */
#define POWER_LEAST_MS 200
/** Most bytes read from a meter's file, which has one or two numbers. */
#define POWER_FILE_MAX 4096u

bool power_grow(struct agent *agent)
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

struct program_peak *power_peak_of(struct program_power *power, uint32_t device)
{
    for (unsigned i = 0; i < power->peak_count; i++)
        if (power->peaks[i].device == device)
            return &power->peaks[i];
    return NULL;
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
        bool busy = false;
        for (size_t i = 0; i < program->vdev_count; i++)
            busy = busy || (program->vdevs[i].entry.device == device && program->vdevs[i].busy);
        if (!program_launches_on(program, device) ||
            (!power_may_run(program) && power->since_ms < since_ms))
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
    struct program_peak *peak = power_peak_of(power, device);

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
static void power_note(struct agent *agent, uint32_t device, uint64_t mw, uint64_t since_ms,
                       uint64_t interval_ns)
{
    struct metered *metered = &agent->power->devices[device];
    uint64_t above = mw > metered->idle_mw ? mw - metered->idle_mw : 0;
    struct program *one = NULL;
    bool whole = false;
    unsigned count = power_ran_on(agent, device, since_ms, &one, &whole);

    metered->reading_mw = mw;
    metered->read = true;
    /* While programs run, foreign_mw only falls: the split with others is unknown. */
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

/**
 * The total of a device whose energy no meter shows, of which the configuration says what it draws
 * at most: it draws its idle power, and the rest of the most in proportion to the load of the
 * programs there.
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

    /* As configured, or that of the vendor's driver for a local PCI device. */
    snprintf(name, sizeof(name), "%s", said->meter);
    if (!said->meter[0] && entry->key.pci[0] && !served_is_address(entry->key.icd))
        snprintf(name, sizeof(name), "%s:%s",
                 strstr(entry->key.platform, "NVIDIA") ? "nvml" : "sysfs", entry->key.pci);
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
    bool read = metered->meter && meter_read(metered->meter, ret_uj, ret_at_ns);
    /* The driver's files in sysfs may show no energy. */
    bool modelled =
        !read && said->busy_w && !said->meter[0] && strncmp(name, "nvml:", strlen("nvml:")) != 0;
    if (modelled != metered->modelled)
        metered->at_ns = 0; /* Totals of the model and of the meter have nothing in common. */
    metered->modelled = modelled;
    if (modelled)
        *ret_uj = power_model(agent, device);
    return read || modelled;
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
    /* The meter reports no time and the same total as before, so it was not updated since then:
     * wait for its next value. */
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
    if (drawn_mw > METER_MOST_MW) /* No device draws that: the total was reset. */
        return;
    uint64_t mw = (uint64_t)drawn_mw;
    if (!said.idle_w && (!metered->read || mw < metered->idle_mw))
        metered->idle_mw = mw;
    power_note(agent, device, mw, since_ms, now - before);
}

uint64_t power_read_all(struct agent *agent)
{
    uint64_t all = 0;

    for (uint32_t i = 0; power_grow(agent) && i < agent->power->count; i++) {
        power_meter(agent, i);
        all += agent->power->devices[i].reading_mw;
    }
    return all;
}
