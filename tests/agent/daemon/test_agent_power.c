#include "tests/support/cases.h"

#include "tests/agent/harness.h"
#include "tests/agent/puppet.h"

/* Power caps, with programs that do and answer as the test says. */

#define SOON 8000
/* Until a program counts as one that does not answer, with time to spare. */
#define SILENT 15000

/** An agent of two devices that draw 20 to 100 W; gpu0 has the meter, if there is one. */
static void configure(const char *meter, unsigned cap_w)
{
    char text[9000];

    snprintf(text, sizeof(text),
             "policy = { power-cap = %u; };\n"
             "devices = ({ match = \"gpu0\"; idle-watts = 20; busy-watts = 100; %s },\n"
             "{ match = \"gpu1\"; idle-watts = 20; busy-watts = 100; });\n",
             cap_w, meter);
    harness_configure(text);
    cr_assert_eq(RESEAT("devices")->status, 0);
}

static void begin(void)
{
    puppets_begin("gpu:one,gpu:larger");
}

TestSuite(agent_power, .init = begin, .fini = puppets_finish, .timeout = 120);

static struct puppet *start(const char *name, const char *device)
{
    struct puppet_kind kind = {.device = device};
    struct puppet *puppet = puppet_start(name, &kind);

    cr_assert(puppet_allocate(puppet, MIB, SOON));
    puppet->busy = 1000;
    puppet_say(puppet);
    return puppet;
}

static bool has_power(void *puppet)
{
    return ((struct puppet *)puppet)->granted_power;
}

Test(agent_power, of_two_that_do_not_fit_together_each_has_its_turn)
{
    configure("", 150);
    struct puppet *a = start("a", "gpu:one"), *b = start("b", "gpu:larger");
    for (unsigned i = 0; i < 3; i++) {
        cr_assert(puppets_run(has_power, i % 2 ? a : b, SOON));
        cr_expect_not(a->granted_power && b->granted_power);
    }
}

Test(agent_power, a_stopped_program_keeps_power_from_nobody_and_grants_are_renewed)
{
    configure("", 150);
    struct puppet *a = start("a", "gpu:one"), *b = start("b", "gpu:larger");
    cr_assert(puppets_run(has_power, a, SOON));
    a->stopped = true;
    cr_assert(puppets_run(has_power, b, SILENT), "a stopped program has all power");
    unsigned told = b->power_told;
    puppets_for(3500);
    cr_expect(b->granted_power, "a stopped program has its turns");
    cr_expect(b->power_told >= told + 2, "the grant is not renewed");
    cr_expect(strstr(RESEAT("explain", "a")->out, "does not answer"));
    a->stopped = false;
    a->granted_power = false;
    cr_expect(puppets_run(has_power, a, SOON), "it goes on when it is continued");
}

Test(agent_power, a_cap_below_what_a_device_takes_is_refused_with_the_least)
{
    configure("", 0);
    harness_says(RESEAT("limit", "gpu0", "--power", "99"), 4, "the least that would do is 100.0 W");
    cr_expect_eq(RESEAT("limit", "gpu0", "--power", "100")->status, 0);
    struct result *refused = RESEAT("run", "--cap", "99", "--", "true");
    cr_expect(strstr(refused->err, "the least that would do is 100.0 W"), "%s", refused->err);
}

Test(agent_power, a_device_without_a_meter_has_a_model)
{
    configure("", 0);
    struct puppet *a = start("a", "gpu:one");
    a->busy = 500;
    puppet_say(a);
    puppets_for(1500);
    uint64_t mw = devices_say("gpu0", "power_mw");
    cr_expect(mw > 59000 && mw < 61000, "%lu", mw);
    cr_expect(strstr(RESEAT("devices")->out, "60W(model)"));
    mw = devices_say("gpu1", "power_mw");
    cr_expect(mw > 19000 && mw < 21000, "%lu", mw);
}

/** The meter says that gpu0 draws so many watts, for @readings. */
static void draws(const char *path, unsigned watts, unsigned readings)
{
    static uint64_t joules = 1, seconds = 1;
    char fresh[4200], text[64];

    snprintf(fresh, sizeof(fresh), "%s.new", path);
    for (unsigned i = 0; i < readings; i++, joules += watts, seconds++) {
        snprintf(text, sizeof(text), "%lu000000 %lu000000000\n", joules, seconds);
        harness_write(fresh, text);
        cr_assert_eq(rename(fresh, path), 0);
        puppets_for(450);
    }
}

Test(agent_power, a_program_that_needs_more_than_its_cap_is_told_the_least_that_would_do)
{
    struct reseat_limits minimum = {.memory = MIB};
    struct puppet_kind kind = {.device = "gpu:one", .minimum = &minimum};
    char path[4096], name[4200];

    snprintf(path, sizeof(path), "%s", harness_path("meter"));
    snprintf(name, sizeof(name), "meter = \"file:%s\";", path);
    configure(name, 0);
    struct puppet *a = puppet_start("a", &kind);
    cr_assert(puppet_allocate(a, MIB, SOON));
    a->busy = 1000;
    puppet_say(a);
    draws(path, 60, 7);
    struct result *refused = RESEAT("limit", "a", "--power", "59");
    cr_assert(strstr(refused->err, "the least that would do is 60.0 W"), "%s", refused->err);
    cr_assert_eq(RESEAT("limit", "a", "--power", "70")->status, 0);
    cr_assert(puppets_run(has_power, a, SOON));
    unsigned notices = a->notices;
    draws(path, 80, 3);
    cr_assert(puppet_told(a, notices + 1, SOON));
    cr_expect_str_eq(a->notice.what, NOTICE_POWER);
    cr_expect(strstr(a->notice.text, "80.0 W, which is the least that would do"), "%s",
              a->notice.text);
    cr_expect_not(a->granted_power);
    cr_expect(strstr(RESEAT("explain", "a")->out, "the cap is 70.0 W"));
}

/* ---- the use of devices and programs ---- */

Test(agent_power, what_no_meter_shows_is_the_sum_of_the_programs)
{
    configure("", 0);
    struct puppet *a = start("a", "gpu:one"), *b = start("b", "gpu:one");
    a->busy = 300;
    a->from_bytes_s = 5000000;
    a->vdevs[0].wanted = 3 * MIB;
    b->busy = 250;
    b->from_bytes_s = 1000000;
    b->to_bytes_s = 9000000;
    puppet_say(a);
    puppet_say(b);
    cr_assert(devices_come_to("gpu0", "busy_permil", 550, SOON));
    cr_expect_eq(ps_says("a", "busy_permil"), 300);
    cr_expect_eq(ps_says("a", "from_device_bytes_s"), 5000000);
    cr_expect_eq(ps_says("b", "to_device_bytes_s"), 9000000);
    cr_expect_eq(devices_say("gpu0", "from_device_bytes_s"), 6000000);
    cr_expect_eq(devices_say("gpu0", "to_device_bytes_s"), 9000000);
    cr_expect_eq(devices_say("gpu0", "wanted_bytes"), 4 * MIB);
    cr_expect_eq(devices_say("gpu0", "held_bytes"), 2 * MIB);
    cr_expect_eq(devices_say("gpu1", "busy_permil"), 0);
    cr_expect_eq(devices_say("gpu0", "temperature_c"), UINT64_MAX, "nothing measures it");
    cr_expect(strstr(RESEAT("devices")->out, " >=55% "));
    struct result *said = RESEAT("ps", "-o", "name,busy,from", "--sort=-busy", "--no-header");
    cr_expect(strstr(said->out, "a     30% 4.8MiB/s"), "%s", said->out);
    cr_expect_lt(strstr(said->out, "30%"), strstr(said->out, "25%"), "%s", said->out);
    said = RESEAT("explain", "a");
    cr_expect(strstr(said->out, "it uses gpu0 for 30% of the time; it reads 4.8 MiB/s"), "%s",
              said->out);
    cr_expect(strstr(said->out, "gpu0 is busy 55% of the time, as its programs know"), "%s",
              said->out);
    b->busy = 900;
    puppet_say(b);
    cr_expect(devices_come_to("gpu0", "busy_permil", 1000, SOON), "no more than all of it");
}

Test(agent_power, launches_that_ended_count_where_they_ran_and_no_longer_than_they_can_have)
{
    configure("", 0);
    struct puppet *a = start("a", "gpu:one");
    a->busy = 100;
    puppet_say(a);
    for (unsigned i = 0; i < 5; i++) {
        puppet_measured(a, "k", "gpu:larger", 1000, 200000000);
        puppet_measured(a, "lies", "gpu:one", 1000, UINT64_MAX / 2);
        puppets_for(500);
    }
    cr_expect_eq(devices_say("gpu0", "busy_permil"), 1000, "more than all of it");
    uint64_t busy = devices_say("gpu1", "busy_permil");
    cr_expect(busy > 100 && busy < 1000, "%lu", busy);
    cr_expect_gt(ps_says("a", "busy_permil"), 1000, "it uses more than one device");
    cr_expect(devices_come_to("gpu1", "busy_permil", 0, SOON), "launches of long ago count");
    cr_expect(devices_come_to("gpu0", "busy_permil", 100, SOON));
}

Test(agent_power, what_a_meter_shows_counts)
{
    setenv("RESEAT_NVML", getenv("TEST_NVML"), 1);
    setenv("FAKE_NVML", "total", 1);
    configure("meter = \"nvml:0000:3b:00.0\"", 0);
    struct puppet *a = start("a", "gpu:one");
    a->busy = 900;
    a->to_bytes_s = 1;
    puppet_say(a);
    cr_assert(devices_come_to("gpu0", "to_device_bytes_s", 3000000, 4 * SOON));
    cr_expect_eq(devices_say("gpu0", "busy_permil"), 370);
    cr_expect_eq(devices_say("gpu0", "temperature_c"), 61);
    cr_expect_eq(devices_say("gpu0", "clock_mhz"), 1980);
    cr_expect_eq(ps_says("a", "busy_permil"), 900);
    struct result *said = RESEAT("devices", "-o", "name,busy,temp,clock,to", "--no-header");
    cr_expect(strstr(said->out, "37%  61C 1980MHz 2.9MiB/s"), "%s", said->out);
    said = RESEAT("explain", "a");
    cr_expect(strstr(said->out, "gpu0 is busy 37% of the time, as its meter shows"), "%s",
              said->out);
}
