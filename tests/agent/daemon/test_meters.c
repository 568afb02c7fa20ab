#include "tests/support/cases.h"
#include <errno.h>
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

/** What a meter shows as soon as it shows @awaited, or after some readings. */
static struct meter_gauges gauges_of(const char *name, enum meter_gauge awaited)
{
    struct meter_gauges gauges;
    struct meter *meter;

    cr_assert_eq(meter_create(name, &meter), 0);
    meter_look(meter, &gauges);
    for (unsigned i = 0; i < 40 && gauges.values[awaited] == METER_UNKNOWN; i++) {
        clock_sleep(S / 20);
        meter_look(meter, &gauges);
    }
    meter_destroy(meter);
    return gauges;
}

static bool shows_nothing(const char *name)
{
    struct meter_gauges gauges = gauges_of(name, METER_BUSY);

    for (unsigned i = 0; i < METER_GAUGES; i++)
        if (gauges.values[i] != METER_UNKNOWN)
            return false;
    return true;
}

static char root[64];

static void write_file(const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", root, name);
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
}

static void write_number(const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof(path), "class/powercap/intel-rapl:0/%s", name);
    write_file(path, text);
}

/** Run a command in that folder. */
static void shell(const char *command)
{
    char line[512];

    snprintf(line, sizeof(line), "cd %s && %s", root, command);
    cr_assert_eq(system(line), 0);
}

#define PCI   "0000:03:00.0"
#define GPU   "bus/pci/devices/" PCI
#define HWMON GPU "/hwmon/hwmon3"

/** A sysfs with one GPU, and a /proc without processes. */
static void make_gpu(void)
{
    strcpy(root, "/tmp/reseat-sysfs-XXXXXX");
    cr_assert(mkdtemp(root));
    setenv("RESEAT_SYSFS", root, 1);
    shell("mkdir -p " HWMON " proc/41/fd proc/41/fdinfo proc/self");
    char proc[96];
    snprintf(proc, sizeof(proc), "%s/proc", root);
    setenv("RESEAT_PROC", proc, 1);
}

Test(meters, a_gpu_of_another_vendor_is_read_from_sysfs)
{
    uint64_t uj;

    make_gpu();
    write_file(GPU "/gpu_busy_percent", "42\n");
    write_file(HWMON "/temp1_input", "55500\n");
    write_file(HWMON "/freq1_input", "1700000000\n");
    write_file(HWMON "/power1_average", "90000000\n");
    cr_assert(says("sysfs:" PCI, &uj));
    cr_expect(uj > 80000000 && uj < 120000000, "%lu", uj);
    struct meter_gauges gauges = gauges_of("sysfs:" PCI, METER_BUSY);
    cr_expect_eq(gauges.values[METER_BUSY], 420);
    cr_expect_eq(gauges.values[METER_TEMPERATURE], 55);
    cr_expect_eq(gauges.values[METER_CLOCK], 1700);
    cr_expect_eq(gauges.values[METER_FROM], METER_UNKNOWN);
    write_file(GPU "/gpu_busy_percent", "101\n");
    write_file(HWMON "/temp1_input", "-200\n");
    write_file(HWMON "/freq1_input", "99999999999999999999999\n");
    cr_expect(shows_nothing("sysfs:" PCI));
    cr_expect_null(meter_sysfs.open("../devices/" PCI));
    cr_expect_null(meter_sysfs.open("0000:04:00.0"));
    shell("rm -r $PWD");
}

/** What the kernel says of a descriptor of a process that has the GPU open. */
static void write_client(unsigned fd, const char *pci, unsigned client, const char *engines)
{
    char name[64], text[512];

    snprintf(text, sizeof(text),
             "pos:\t0\ndrm-driver:\ti915\ndrm-pdev:\t%s\ndrm-client-id:\t%u\n%s", pci, client,
             engines);
    snprintf(name, sizeof(name), "proc/41/fdinfo/%u", fd);
    write_file(name, text);
    snprintf(name, sizeof(name), "ln -sf /dev/dri/renderD128 proc/41/fd/%u", fd);
    shell(name);
}

/** What a scan says of the share, some time after the one before. */
static uint64_t busy_of(void *gpu)
{
    struct meter_gauges gauges = {.values = {METER_UNKNOWN}};

    clock_sleep(S / 5);
    meter_sysfs.scan(gpu, &gauges);
    return gauges.values[METER_BUSY];
}

Test(meters, a_gpu_without_a_share_has_the_engine_times_of_its_processes)
{
    make_gpu();
    write_client(3, PCI, 7, "drm-engine-render:\t1000 ns\ndrm-engine-copy:\t5 ns\n");
    write_client(4, PCI, 7, "drm-engine-render:\t1000 ns\n");
    write_client(5, "0000:99:00.0", 8, "drm-engine-render:\t1000 ns\n");
    void *gpu = meter_sysfs.open(PCI);
    cr_assert(gpu);
    cr_expect_eq(busy_of(gpu), METER_UNKNOWN, "one total says nothing");
    /* 0.1 s of the busiest engine: two descriptors are of one client, one is of another device. */
    write_client(3, PCI, 7, "drm-engine-render:\t100001000 ns\ndrm-engine-copy:\t5 ns\n");
    write_client(4, PCI, 7, "drm-engine-render:\t100001000 ns\n");
    write_client(5, "0000:99:00.0", 8, "drm-engine-render:\t199999000 ns\n");
    uint64_t busy = busy_of(gpu);
    cr_expect(busy > 5 && busy <= 500, "%lu", busy);
    cr_expect_eq(busy_of(gpu), 0, "nothing ran since");
    /* A client has ended, so that the times are less than before. */
    write_client(3, PCI, 7, "drm-engine-render:\t77 ns\ndrm-engine-copy:\t0 ns\n");
    write_client(4, PCI, 7, "drm-engine-render:\t77 ns\n");
    cr_expect_eq(busy_of(gpu), METER_UNKNOWN);
    /* More than the time that went by: it is all of it. */
    write_client(3, PCI, 7, "drm-engine-render:\t9000000000000 ns\n");
    write_client(4, PCI, 7, "drm-engine-render:\t9000000000000 ns\n");
    cr_expect_eq(busy_of(gpu), 1000);
    write_client(3, PCI, 7, "drm-engine-render:\trubbish\n");
    write_client(4, PCI, 7, "drm-engine-render:\t-5 ns\n");
    cr_expect_eq(busy_of(gpu), METER_UNKNOWN);
    meter_sysfs.close(gpu);
    shell("rm -r $PWD");
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

Test(meters, gauges_of_nvidias_devices_that_are_wrong_are_unknown)
{
    setenv("RESEAT_NVML", getenv("TEST_NVML"), 1);
    setenv("FAKE_NVML", "total", 1);
    struct meter_gauges gauges = gauges_of("nvml:0000:3b:00.0", METER_TO);
    cr_expect_eq(gauges.values[METER_BUSY], 370);
    cr_expect_eq(gauges.values[METER_TEMPERATURE], 61);
    cr_expect_eq(gauges.values[METER_CLOCK], 1980);
    cr_expect_eq(gauges.values[METER_FROM], 2000000);
    cr_expect_eq(gauges.values[METER_TO], 3000000);
    setenv("FAKE_NVML", "power", 1);
    cr_expect(shows_nothing("nvml:0000:3b:00.0"));
}

Test(meters, an_unknown_kind_is_refused)
{
    struct meter *meter;

    cr_expect_eq(meter_create("watt:1", &meter), -EINVAL);
    cr_expect_eq(meter_create("rapl", &meter), -EINVAL);
}
