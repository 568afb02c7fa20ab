/**
 * Opens a plugin that is linked to OpenCL, has it compute, and closes it, again and again.
 *
 *   plugged PLUGIN [--rounds N]
 */
#include "plugin_part.h"
#include "prog.h"

#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    long rounds = prog_option(argc, argv, "--rounds", 4), wrong = 0;

    REQUIRE(argc > 1);
    do {
        for (long i = 0; i < rounds; i++) {
            void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
            cl_uint bad = 1;
            cl_int (*use)(cl_uint, cl_uint *);
            if (!plugin)
                prog_fail("%s", dlerror());
            *(void **)&use = dlsym(plugin, "plugin_use");
            REQUIRE(use != NULL);
            OK(use((cl_uint)i, &bad));
            wrong += bad;
            REQUIRE(dlclose(plugin) == 0);
        }
    } while (prog_again());
    printf("plugged: %ld words wrong\n", wrong);
    return wrong != 0;
}
