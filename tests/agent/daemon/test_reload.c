#include "tests/support/cases.h"
#include <jansson.h>
#include <signal.h>

#include "tests/agent/harness.h"
#include "tests/agent/puppet.h"

/* What a configuration that is read again says of programs that run. */

#define SOON 8000

static void begin(void)
{
    puppets_begin("gpu:one,gpu:larger");
    harness_configure("");
    RESEAT("devices");
}

TestSuite(reload, .init = begin, .fini = puppets_finish, .timeout = 120);

static void reload(const char *text)
{
    harness_configure(text);
    harness_ends(PUPPETS_RESEAT("config", "reload"), 0);
}

static struct puppet *start(const char *name, struct puppet_kind kind)
{
    static const struct reseat_limits minimum = {.memory = 1};

    kind.device = "gpu:one";
    kind.minimum = &minimum;
    struct puppet *puppet = puppet_start(name, &kind);
    cr_assert(puppet_allocate(puppet, 200 * MIB, SOON));
    return puppet;
}

/** Priority, ways and whether it is preemptible, as `reseat ps` has them: "5 spill,wait
 * preemptible".
 */
static const char *treated(const char *name)
{
    static char text[256];
    json_t *object = harness_parse(PUPPETS_RESEAT("ps", "--json")->out), *way;
    json_t *app = harness_find(object, "apps", "name", name);
    size_t i, used = (size_t)snprintf(text, sizeof(text), "%s ", harness_text(app, "priority"));

    json_array_foreach(json_object_get(app, "on_full"), i, way)
    {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? "," : "",
                                 json_string_value(way));
    }
    if (json_is_true(json_object_get(app, "preemptible")))
        snprintf(text + used, sizeof(text) - used, " preemptible");
    return text;
}

#define EVERYONE                                                                                   \
    "programs = ({ match = \"*\"; priority = 5; preemptible = true; quota = \"50MiB\"; "           \
    "ways = \"spill, wait\"; });\n"

Test(reload, reaches_programs_that_run)
{
    struct puppet *app = start("app", (struct puppet_kind){0});

    cr_assert_str_eq(treated("app"), "0 upgrade,spill,wait,suspend");
    reload(EVERYONE);
    cr_assert_str_eq(treated("app"), "5 spill,wait preemptible");
    /* As `reseat limit` has it: it is told, and gives back what is too much. */
    cr_assert(puppet_told(app, 1, SOON));
    cr_assert_str_eq(app->notice.what, NOTICE_QUOTA);
    cr_assert_eq(app->notice.value, 50 * MIB);
    cr_assert(devices_come_to("gpu0", "granted_bytes", 50 * MIB, SOON));
    cr_assert_eq(app->vdevs[0].granted, 50 * MIB);
    /* Nothing new is nothing to tell; what is left out is as without a file. */
    reload(EVERYONE "# The same.\n");
    puppets_for(200);
    cr_assert_eq(app->notices, 1);
    reload("");
    cr_assert(puppet_told(app, 2, SOON));
    cr_assert_eq(app->notice.value, UINT64_MAX);
    cr_assert_str_eq(treated("app"), "0 upgrade,spill,wait,suspend");
    cr_assert_eq(ps_says("app", "limited"), 0);
    /* One that is wrong changes nothing. */
    harness_configure("programs = ({ match = \"*\"; priority = 5000; });\n");
    cr_assert_eq(PUPPETS_RESEAT("config", "reload")->status, 2);
    cr_assert_str_eq(treated("app"), "0 upgrade,spill,wait,suspend");
}

Test(reload, a_signal_does_the_same)
{
    struct puppet *app = start("app", (struct puppet_kind){0});

    harness_configure(EVERYONE);
    kill(harness_agent(), SIGHUP);
    cr_assert(puppet_told(app, 1, SOON));
    cr_assert_eq(app->notice.value, 50 * MIB);
    cr_assert_str_eq(treated("app"), "5 spill,wait preemptible");
}

Test(reload, leaves_what_their_own_commands_said)
{
    start("first", (struct puppet_kind){.priority = "-3"});
    start("second", (struct puppet_kind){.ways = "uw", .preemptible = true});
    struct puppet *third = start("third", (struct puppet_kind){.quota = 300 * MIB});
    struct puppet *fourth = start("fourth", (struct puppet_kind){0});

    cr_assert_eq(PUPPETS_RESEAT("limit", "fourth", "--off")->status, 0);
    cr_assert(puppet_told(fourth, 1, SOON));
    reload(EVERYONE);
    cr_assert_str_eq(treated("first"), "-3 spill,wait preemptible");
    cr_assert_str_eq(treated("second"), "5 upgrade,wait preemptible");
    cr_assert_str_eq(treated("third"), "5 spill,wait preemptible");
    cr_assert_eq(ps_says("first", "quota_bytes"), 50 * MIB);
    cr_assert_eq(ps_says("third", "quota_bytes"), 300 * MIB);
    cr_assert_eq(ps_says("fourth", "limited"), 0);
    puppets_for(200);
    cr_assert_eq(third->notices, 0);
    cr_assert_eq(fourth->notices, 1);
    /* The next agent knows what was said, and what its file says now. */
    cr_assert_eq(PUPPETS_RESEAT("agent", "stop")->status, 0);
    harness_configure("programs = ({ match = \"*\"; priority = 7; quota = \"70MiB\"; });\n");
    cr_assert_eq(RESEAT("agent", "start")->status, 0);
    cr_assert_str_eq(treated("first"), "-3 upgrade,spill,wait,suspend");
    cr_assert_str_eq(treated("second"), "7 upgrade,wait preemptible");
    cr_assert_eq(ps_says("first", "quota_bytes"), 70 * MIB);
    cr_assert_eq(ps_says("third", "quota_bytes"), 300 * MIB);
    cr_assert_eq(ps_says("fourth", "limited"), 0);
}
