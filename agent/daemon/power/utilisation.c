#include "agent/daemon/power/utilisation.h"

#include "agent/daemon/agent_messages.h"
#include "agent/daemon/costs/costs.h"
#include "agent/daemon/power/power.h"

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

    power_gauges(agent, device, &use.gauges);
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

void utilisation_put_program(const struct agent *agent, const struct program *program,
                             struct frame *frame)
{
    frame_array(frame, "use");
    for (uint32_t i = 0; i < agent->ledger.count; i++) {
        uint32_t busy = utilisation_of_program(agent, program, i);
        if (!busy)
            continue;
        frame_map(frame, NULL);
        frame_string(frame, "device", agent->ledger.devices[i].name);
        frame_u64(frame, "busy_permil", busy);
        frame_end(frame);
    }
    frame_end(frame);
}
