#ifndef RESEAT_TESTS_AGENT_CONFIG_CONFIG_RIG_H
#define RESEAT_TESTS_AGENT_CONFIG_CONFIG_RIG_H

#include "tests/support/cases.h"
#include <errno.h>
#include <unistd.h>

#include "agent/config/config.h"
#include "tests/support/folder.h"

/* Configurations from texts, in a folder of the test's own. */

static char config_folder[64];

/** Nothing of the machine that runs the tests reaches them. */
static inline void config_rig_init(void)
{
    char variable[128];

    folder_make(config_folder);
    for (size_t i = 0; i < settings_count; i++) {
        config_variable(&settings_table[i], variable, sizeof(variable));
        unsetenv(variable);
    }
    unsetenv("RESEAT_CONFIG");
    setenv("XDG_CONFIG_HOME", config_folder, 1);
}

static inline const char *config_put(const char *name, const char *text, size_t size)
{
    static char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", config_folder, name);
    file = fopen(path, "we");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(text, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
    return path;
}

static inline int config_try(const char *text, size_t size, struct config *ret_config,
                             struct config_error *ret_error)
{
    struct config_source source = {.path = config_put("test.conf", text, size)};

    return config_load(&source, ret_config, ret_error);
}

/** A text that has to be right. */
static inline struct config config_of(const char *text)
{
    struct config config = {0};
    struct config_error error = {0};

    cr_assert_eq(config_try(text, strlen(text), &config, &error), 0, "line %u: %s\n%s", error.line,
                 error.reason, text);
    return config;
}

static inline void config_text_of(const struct config *config, const char *name, char ret[128])
{
    setting_text(settings_find(name), config_policy(config), ret, 128);
}

#endif
