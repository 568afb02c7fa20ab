#include <dlfcn.h>

int main(void)
{
    return dlopen("libOpenCL.so.1", RTLD_NOW) ? 0 : 1;
}
