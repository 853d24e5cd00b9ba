// Made by tools/fit_math.py; lowest power first.  Errors are relative to the function unless said otherwise, before
// rounding in evaluation.
#pragma once

#include <cstdint>

namespace tw::math {

// exp(r) = 1 + r + r²·P(r), |r| ≤ ln(2)/2; error 2^-28.2
inline constexpr double exp_f32[] = {0x1.fffffc0000000p-2, 0x1.55548e0000000p-3, 0x1.55589c0000000p-5,
                                     0x1.123c320000000p-7, 0x1.6a66940000000p-10};
// expm1(r) = r + r²·P(r), |r| ≤ ln(2)/2, relative to expm1; error 2^-26.1
inline constexpr double expm1_f32[] = {0x1.fffffe0000000p-2, 0x1.5554ae0000000p-3, 0x1.5557140000000p-5,
                                       0x1.1229380000000p-7, 0x1.6b77860000000p-10};
// 2^r = 1 + r·P(r), |r| ≤ 1/2; error 2^-27.9
inline constexpr double exp2_f32[] = {0x1.62e4300000000p-1, 0x1.ebfbd60000000p-3,  0x1.c6af720000000p-5,
                                      0x1.3b31f60000000p-7, 0x1.5f0e140000000p-10, 0x1.3ecb1c0000000p-13};
// log(1 + x) = x − x²/2 + x³·P(x), √½ ≤ 1 + x ≤ √2; error 2^-27.3
inline constexpr double log_f32[] = {0x1.5555540000000p-2,  -0x1.0002340000000p-2, 0x1.99a04c0000000p-3,
                                     -0x1.546eb20000000p-3, 0x1.22d0f00000000p-3,  -0x1.0da02e0000000p-3,
                                     0x1.05ae200000000p-3,  -0x1.38f9840000000p-4};
// 2·atanh(s) = 2s + s³·P(s²), |s| ≤ (√2 − 1)/(√2 + 1); error 2^-35.0
inline constexpr double log_ratio_f32[] = {0x1.5555540000000p-1, 0x1.999bd60000000p-2, 0x1.23f0f80000000p-2,
                                           0x1.ec38ee0000000p-3};
// sin(r) = r + r³·P(r²), |r| ≤ π/4; error 2^-27.9
inline constexpr double sin_f32[] = {-0x1.5555460000000p-3, 0x1.1107760000000p-7, -0x1.9952c60000000p-13};
// cos(r) = 1 − r²/2 + r⁴·P(r²), |r| ≤ π/4; error 2^-33.0
inline constexpr double cos_f32[] = {0x1.55554a0000000p-5, -0x1.6c0c280000000p-10, 0x1.99e8100000000p-16};
// tan(r) = r + r³·P(r²), |r| ≤ π/4; error 2^-29.5
inline constexpr double tan_f32[] = {0x1.5555600000000p-2, 0x1.110d9c0000000p-3, 0x1.bada6e0000000p-5,
                                     0x1.5cb71a0000000p-6, 0x1.6309fa0000000p-7, 0x1.6d717a0000000p-14,
                                     0x1.1ef99c0000000p-8};
// atan(x) = x + x³·P(x²), |x| ≤ 1; error 2^-28.5
inline constexpr double atan_f32[] = {-0x1.55553e0000000p-2, 0x1.9991ea0000000p-3,  -0x1.2420f80000000p-3,
                                      0x1.c092b00000000p-4,  -0x1.58202a0000000p-4, 0x1.da86920000000p-5,
                                      -0x1.fe4f4e0000000p-6, 0x1.651e560000000p-7,  -0x1.d5422a0000000p-10};
// asin(x) = x + x³·P(x²), |x| ≤ 1/2; error 2^-27.6
inline constexpr double asin_f32[] = {0x1.5555c80000000p-3, 0x1.3302080000000p-4, 0x1.747b280000000p-5,
                                      0x1.8c44b20000000p-6, 0x1.5956980000000p-5};
// sinh(x) = x + x³·P(x²), |x| ≤ 1; error 2^-25.3
inline constexpr double sinh_f32[] = {0x1.5555980000000p-3, 0x1.10f7680000000p-7, 0x1.ab3fd00000000p-13};
// exp(r) = 1 + r + r²·P(r), |r| ≤ ln(2)/2; error 2^-57.9
inline constexpr double exp_f64[] = {
    0x1.000000000000ap-1,  0x1.55555555554fap-3,  0x1.5555555550618p-5,  0x1.111111112791ep-7,  0x1.6c16c184af4d4p-10,
    0x1.a01a012bfa5e2p-13, 0x1.a01998a0c7beap-16, 0x1.71df2007b3eddp-19, 0x1.28aec6a3daf73p-22, 0x1.ad8a7a96f5ceep-26};
// expm1(r) = r + r²·P(r), |r| ≤ ln(2)/2, relative to expm1; error 2^-55.5
inline constexpr double expm1_f64[] = {
    0x1.0000000000005p-1,  0x1.555555555553dp-3,  0x1.555555555209bp-5,  0x1.1111111118054p-7,  0x1.6c16c17f5bd9dp-10,
    0x1.a01a017ab22f6p-13, 0x1.a019a5fa561b1p-16, 0x1.71de7a77659fbp-19, 0x1.28a34e0824363p-22, 0x1.ae82d2952fb33p-26};
// 2^r = 1 + r·P(r), |r| ≤ 1/2; error 2^-59.2
inline constexpr double exp2_f64[] = {0x1.62e42fefa39efp-1,  0x1.ebfbdff82c58cp-3,  0x1.c6b08d704a181p-5,
                                      0x1.3b2ab6fba5682p-7,  0x1.5d87fe788925ep-10, 0x1.430912f65338dp-13,
                                      0x1.ffcbfcd989c32p-17, 0x1.62c02a1f41eacp-20, 0x1.b52426cf209acp-24,
                                      0x1.e4b3cce7df584p-28, 0x1.eaf7bdb9dc04fp-32, 0x1.e8365d4f792bcp-36};
// 2·atanh(s) = 2s + s³·P(s²), |s| ≤ (√2 − 1)/(√2 + 1); error 2^-66.6
inline constexpr double log_ratio_f64[] = {0x1.5555555555555p-1, 0x1.9999999999d0ep-2, 0x1.2492492439b86p-2,
                                           0x1.c71c724b39136p-3, 0x1.745ce1cf92262p-3, 0x1.3b2024936935ap-3,
                                           0x1.0f67293ee3f2ap-3, 0x1.0f0f961781da8p-3};
// sin(r) = r + r³·P(r²), |r| ≤ π/4; error 2^-57.9
inline constexpr double sin_f64[] = {-0x1.5555555555548p-3, 0x1.111111110f746p-7,   -0x1.a01a019bed901p-13,
                                     0x1.71de355a09e73p-19, -0x1.ae5e4ff11ced9p-26, 0x1.5d8cc2e2896e8p-33};
// cos(r) = 1 − r²/2 + r⁴·P(r²), |r| ≤ π/4; error 2^-63.9
inline constexpr double cos_f64[] = {0x1.555555555554bp-5,   -0x1.6c16c16c15008p-10, 0x1.a01a019c8cd54p-16,
                                     -0x1.27e4f7ef4380ap-22, 0x1.1ee9d9df88c8bp-29,  -0x1.8fa55933f40e3p-37};
// tan(r) = r + r³·P(r²), |r| ≤ π/4; error 2^-56.2
inline constexpr double tan_f64[] = {
    0x1.55555555554eep-2,   0x1.1111111118710p-3,  0x1.ba1ba1b438e5fp-5,   0x1.664f49b1e5f6dp-6,  0x1.226e114f31c98p-7,
    0x1.d6d959732e9bfp-9,   0x1.7d5991680493ap-10, 0x1.3809aa155ea99p-11,  0x1.d1be0807b89d3p-13, 0x1.1f9a513210ab3p-13,
    -0x1.c948f196d7dc1p-16, 0x1.7a8fa60b268ebp-14, -0x1.7c1bcf9faa24ap-15, 0x1.5fcb5b4d03b42p-16};
// atan(x) = x + x³·P(x²), |x| ≤ 1; error 2^-55.0
inline constexpr double atan_f64[] = {
    -0x1.555555555544ap-2, 0x1.9999999983ef9p-3,   -0x1.2492491f9bbc1p-3, 0x1.c71c709cdaa33p-4,  -0x1.745d021df3ba5p-4,
    0x1.3b12b227814bcp-4,  -0x1.110897a2ea2ecp-4,  0x1.e177df81c4eaep-5,  -0x1.ad31e2b5ea2b6p-5, 0x1.7ee17c71f3418p-5,
    -0x1.4f3f8d115835cp-5, 0x1.170c2b5a4275ep-5,   -0x1.a70cd66b859eep-6, 0x1.16120c9f5168cp-6,  -0x1.2ccfbd315702ap-7,
    0x1.f915d76ca856fp-9,  -0x1.30e93baf431e8p-10, 0x1.d3444e699b3e7p-13, -0x1.5381de404e6d8p-16};
// asin(x) = x + x³·P(x²), |x| ≤ 1/2; error 2^-55.9
inline constexpr double asin_f64[] = {0x1.5555555555390p-3, 0x1.333333336e7a3p-4,  0x1.6db6db4280d4dp-5,
                                      0x1.f1c72c367f8b1p-6, 0x1.6e89f480d7781p-6,  0x1.1c6bdda9f2d53p-6,
                                      0x1.c6fe123b86efdp-7, 0x1.8ec0e66d22611p-7,  0x1.abe171fd5c6fbp-8,
                                      0x1.3fe85586581f6p-6, -0x1.09bff2649cfdep-6, 0x1.0566e6dc773e1p-5};
// sinh(x) = x + x³·P(x²), |x| ≤ 1; error 2^-53.2
inline constexpr double sinh_f64[] = {0x1.555555555547bp-3,  0x1.1111111121e73p-7,  0x1.a01a018488e43p-13,
                                      0x1.71de4f0764182p-19, 0x1.ae54aa22c38fdp-26, 0x1.66f739c37f557p-33};
// erf(x) = x + x·P(x²), |x| ≤ 1; error 2^-24.6
inline constexpr double erf_small_f32[] = {0x1.06eba20000000p-3,  -0x1.8126740000000p-2, 0x1.ce09360000000p-4,
                                           -0x1.b5a3020000000p-6, 0x1.4245b00000000p-8,  -0x1.273ce80000000p-11};
// log2(erfc(x)) = P(x), 1 ≤ x ≤ 3.95, error absolute in erf; error 2^-26.0
inline constexpr double erf_large_f32[] = {-0x1.f998ca0000000p-9, -0x1.9cb3680000000p+0, -0x1.e373ba0000000p-1,
                                           -0x1.05dcd40000000p-3, 0x1.5d435a0000000p-6,  -0x1.b2fd120000000p-10};
// 2^r = 1 + r·P(r), |r| ≤ 1/2; error 2^-23.4
inline constexpr double exp2_short_f32[] = {0x1.62e42a0000000p-1, 0x1.ebf9bc0000000p-3, 0x1.c6b6a40000000p-5,
                                            0x1.3cea660000000p-7, 0x1.5bf7a20000000p-10};
// log2(2·(1 − Φ(x))) = x·P(x), 0 ≤ x ≤ 15, error absolute in Φ; error 2^-25.1
inline constexpr double normal_tail_f32[] = {-0x1.26af040000000p+0, -0x1.d632040000000p-2,  -0x1.af159e0000000p-5,
                                             0x1.dd62b20000000p-8,  -0x1.5fea8e0000000p-12, -0x1.7ffe7e0000000p-14,
                                             0x1.1a61be0000000p-16, -0x1.887fd80000000p-21};
// erf(x) = x + x·P(x²), |x| ≤ 3/2; error 2^-56.4
inline constexpr double erf_small_f64[] = {
    0x1.06eba8214db69p-3,  -0x1.812746b0379fdp-2,  0x1.ce2f21a043628p-4,  -0x1.b82ce312ac7a2p-6,
    0x1.565bcd12e19d3p-8,  -0x1.c02db4b6e0efdp-11, 0x1.f9a33aefcfb57p-14, -0x1.f4d3ebbe47c26p-17,
    0x1.b9fdcdfa00a36p-20, -0x1.6073557687242p-23, 0x1.06ca81dff1a9ep-26, -0x1.be456613a54e7p-30,
    0x1.72c11977dea7cp-32, -0x1.0811476f5c7fep-33, 0x1.5e317b9681de2p-35, -0x1.5b9a3419c7ebap-37,
    0x1.d8f496153faf8p-40, -0x1.889d982145463p-43, 0x1.2bba2593c185bp-47};
// −log(erfc(x)) = P(0.4375·x − 1.640625), 3/2 ≤ x ≤ 6, error absolute in erf; error 2^-66.7
inline constexpr double erf_large_f64[] = {
    0x1.ffa9adc456ac7p+3,   0x1.1b717f4a2fbcbp+4,   0x1.447574e075c02p+2,   0x1.b20c00ef7ce86p-5,
    -0x1.3db7cbec5a231p-6,  0x1.d7a10b1a50facp-8,   -0x1.59e8d926a1d76p-9,  0x1.ec9db71f9af08p-11,
    -0x1.4f0aacd987928p-12, 0x1.ad979eeaff5d5p-14,  -0x1.afac166946ca6p-16, 0x1.591d60894e346p-17,
    -0x1.124080bf042efp-19, -0x1.93db4acca1e4dp-17, -0x1.41686daea48aep-16, -0x1.37e3bd505b2dep-16,
    -0x1.5bb154af2b0e9p-17, -0x1.cf107bd6da169p-19, -0x1.f4ec436c047d7p-22};
// ln 2 = high + low, π/2 = high + low, log2 e = high + low
inline constexpr double ln2_f32[] = {0x1.62e4000000000p-1, 0x1.7f7d1c0000000p-20};
inline constexpr double half_pi_f32[] = {0x1.921fb60000000p+0, -0x1.777a5c0000000p-25};
inline constexpr double log2_e_f32[] = {0x1.7154760000000p+0, 0x1.4ae0c00000000p-26};
// ln 2 = high + low, π/2 = high + low, log2 e = high + low
inline constexpr double ln2_f64[] = {0x1.62e42fee00000p-1, 0x1.a39ef35793c76p-33};
inline constexpr double half_pi_f64[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};
inline constexpr double log2_e_f64[] = {0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56};
// 2/π, from the point on
inline constexpr uint32_t two_over_pi[] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a,
    0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41,
    0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf,
    0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08,
    0x56033046, 0xfc7b6bab, 0xf0cfbc20, 0x9af4361d, 0xa9e39161, 0x5ee61b08};

}  // namespace tw::math
