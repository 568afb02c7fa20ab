#include "agent/config/environment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool environment_concerns_drivers(const char *variable)
{
    static const char *const prefixes[] = {
        "OCL_ICD_", "OPENCL_",     "RESEAT_ICD_",   "POCL_",    "RUSTICL_",  "CUDA_",
        "NVIDIA_",  "GPU_",        "ROCR_",         "HIP_",     "HSA_",      "AMD_",
        "ZE_",      "MESA_",       "LIBGL_",        "GALLIUM_", "OCLGRIND_", "SYCL_",
        "CLC_",     "INTEL_",      "NEO_",          "LP_",      "LLVMPIPE_", "LD_LIBRARY_PATH",
        "EMU_",     "RESEAT_EMU_", "RESEAT_SERVER",
    };

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static int environment_by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int environment_of_drivers(const char ***ret_variables, size_t *ret_count)
{
    size_t total = 0, count = 0;

    while (environ && environ[total])
        total++;
    const char **variables = calloc(total + 1, sizeof(*variables));
    if (!variables)
        return -ENOMEM;
    for (size_t i = 0; i < total; i++)
        if (environment_concerns_drivers(environ[i]))
            variables[count++] = environ[i];
    qsort(variables, count, sizeof(*variables), environment_by_text);
    *ret_variables = variables;
    *ret_count = count;
    return 0;
}

int environment_for_lister(char *const *base, const char *variables, char ***ret)
{
    size_t base_count = 0, lines = 1, used = 0;
    size_t text = strlen(variables) + 1;

    while (base && base[base_count])
        base_count++;
    for (const char *at = variables; *at; at++)
        lines += *at == '\n';
    size_t pointers = (base_count + lines + 1) * sizeof(char *);
    char **list = malloc(pointers + text);
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < base_count; i++)
        if (!environment_concerns_drivers(base[i]))
            list[used++] = base[i];
    char *at = (char *)list + pointers;
    memcpy(at, variables, text);
    for (char *line = strsep(&at, "\n"); line; line = strsep(&at, "\n"))
        if (environment_concerns_drivers(line))
            list[used++] = line;
    list[used] = NULL;
    *ret = list;
    return 0;
}
