#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/meters/meters.h"
#include "state/base/clock.h"

/* Meters of energy, on a sysfs and a library of NVIDIA's that are made up. */

#define S NS_PER_S

TestSuite(meters, .timeout = 60);

Test(meters, a_total_that_wraps_goes_on)
{
    struct meter_total total = {0};

    meter_total_add(&total, 900, 1000, 1 * S);
    cr_expect_eq(total.at_ns, 0, "one reading says nothing");
    meter_total_add(&total, 950, 1000, 2 * S);
    meter_total_add(&total, 30, 1000, 3 * S);
    cr_expect_eq(total.uj, 130);
    cr_expect_eq(total.at_ns, 3 * S);
}

Test(meters, a_total_that_goes_back_leaps_or_was_silent_is_unknown)
{
    static const struct {
        uint64_t value, after_s;
    } wrong[] = {{400, 1}, {UINT64_MAX, 1}, {600, 3600}};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct meter_total total = {0};
        meter_total_add(&total, 400, 0, 1 * S);
        meter_total_add(&total, 500, 0, 2 * S);
        cr_assert_eq(total.uj, 100);
        meter_total_add(&total, wrong[i].value - (i == 0), 0, (2 + wrong[i].after_s) * S);
        cr_expect_eq(total.at_ns, 0, "%zu", i);
        cr_expect_eq(total.uj, 100, "%zu", i);
    }
}

Test(meters, power_is_summed_up_over_time)
{
    struct meter_total total = {0};

    meter_power_add(&total, 10000, 1 * S);
    meter_power_add(&total, 20000, 3 * S);
    cr_expect_eq(total.uj, 30000000); /* 15 W for 2 s */
    meter_power_add(&total, 20000, 3 * S);
    cr_expect_eq(total.uj, 30000000, "no time went by");
}

/** Whether a meter says something within some seconds, and what. */
static bool says(const char *name, uint64_t *ret_uj)
{
    struct meter *meter;
    uint64_t at_ns;
    bool known = false;

    cr_assert_eq(meter_create(name, &meter), 0);
    for (unsigned i = 0; i < 60 && !known; i++) {
        clock_sleep(S / 20);
        known = meter_read(meter, ret_uj, &at_ns);
    }
    meter_destroy(meter);
    return known;
}

static char root[64];

static void write_number(const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/class/powercap/intel-rapl:0/%s", root, name);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
}

Test(meters, a_package_of_processors_is_read_from_sysfs)
{
    struct meter *meter;
    char command[256];
    uint64_t uj = 0, at_ns;
    bool known = false;

    strcpy(root, "/tmp/reseat-sysfs-XXXXXX");
    cr_assert(mkdtemp(root));
    setenv("RESEAT_SYSFS", root, 1);
    snprintf(command, sizeof(command), "mkdir -p %s/class/powercap/intel-rapl:0", root);
    cr_assert_eq(system(command), 0);
    write_number("max_energy_range_uj", "1000000\n");
    write_number("energy_uj", "rubbish\n");
    cr_expect_not(says("rapl:0", &uj));
    write_number("energy_uj", " -5\n");
    cr_expect_not(says("rapl:0", &uj));
    write_number("energy_uj", "999000\n");
    cr_assert_eq(meter_create("rapl:0", &meter), 0);
    clock_sleep(S / 2);
    write_number("energy_uj", "4000\n");
    for (unsigned i = 0; i < 60 && !known; i++) {
        clock_sleep(S / 20);
        known = meter_read(meter, &uj, &at_ns);
    }
    meter_destroy(meter);
    cr_expect(known);
    cr_expect_eq(uj, 5000);
    cr_expect_not(says("rapl:../0", &uj));
    cr_expect_not(says("rapl:1", &uj));
    snprintf(command, sizeof(command), "rm -r %s", root);
    cr_assert_eq(system(command), 0);
}

Test(meters, nvidias_devices_have_a_total_or_power)
{
    uint64_t uj = 0;

    setenv("RESEAT_NVML", getenv("TEST_NVML"), 1);
    setenv("FAKE_NVML", "total", 1);
    cr_assert(says("nvml:0000:3b:00.0", &uj));
    cr_expect_eq(uj, 50000000);
    setenv("FAKE_NVML", "power", 1);
    cr_assert(says("nvml:0000:3b:00.0", &uj));
    cr_expect(uj > 45000000 && uj < 75000000, "%lu", uj);
    cr_expect_not(says("nvml:0000:99:00.0", &uj));
    setenv("RESEAT_NVML", "/nonexistent.so", 1);
    cr_expect_not(says("nvml:0000:3b:00.0", &uj));
}

Test(meters, an_unknown_kind_is_refused)
{
    struct meter *meter;

    cr_expect_eq(meter_create("watt:1", &meter), -EINVAL);
    cr_expect_eq(meter_create("rapl", &meter), -EINVAL);
}
