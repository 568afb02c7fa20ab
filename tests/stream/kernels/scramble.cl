__kernel void scramble(__global const ulong *in, __global ulong *out, __constant ulong *key)
{
    size_t i = get_global_id(0);
    ulong x = in[i] ^ key[0];
    x *= 0x9e3779b97f4a7c15UL;
    out[i] = x ^ (x >> 29);
}
