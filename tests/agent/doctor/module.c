#include <dlfcn.h>

/* A library that is a module of something: opens OpenCL when it is asked to. */
void *module_load(void);

void *module_load(void)
{
    return dlopen("libOpenCL.so.1", RTLD_NOW);
}
